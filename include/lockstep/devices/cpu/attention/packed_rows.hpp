/// \file
/// Copies between rows of heads and blocks in float, whose rows are padded with zeros to whole vectors.
#pragma once

#include <cstddef>

#include "lockstep/devices/cpu/exponentials.hpp"
#include "lockstep/devices/cpu/lanes.hpp"

namespace lockstep::detail {

/// Rows of `size` elements, `row` elements apart.
template <class A>
struct HeadRows {
  A* at;
  std::size_t row, count, size;
};

/// to (count, to_row) = factor times the rows, and zeros in what is left of a row.
template <class A>
[[gnu::noinline]] void pack_rows(const HeadRows<const A>& from, float factor, float* to,
                                 std::size_t to_row) {
  run_with_any_vectors<A>([&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
    using V = Lanes<float, bytes.value>;
    constexpr std::size_t lanes = lanes_of<float, bytes.value>;
    for (std::size_t i = 0; i < from.count; ++i)
      for (std::size_t k = 0; k < to_row; k += lanes) {
        V v{};
        if (k < from.size) load_some(v, from.at + i * from.row + k, from.size - k);
        v *= factor;
        store(to + i * to_row + k, v);
      }
  });
}

/// The rows = factor times from (count, from_row).
template <class A>
[[gnu::noinline]] void unpack_rows(const float* from, std::size_t from_row, float factor,
                                   const HeadRows<A>& to) {
  run_with_any_vectors<A>([&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
    using V = Lanes<float, bytes.value>;
    constexpr std::size_t lanes = lanes_of<float, bytes.value>;
    for (std::size_t i = 0; i < to.count; ++i)
      for (std::size_t k = 0; k < to.size; k += lanes) {
        V v;
        load(v, from + i * from_row + k);
        v *= factor;
        store_some(to.at + i * to.row + k, v, to.size - k);
      }
  });
}

/// to (columns, to_row) = the transpose of from (rows, columns). Both numbers are multiples of the
/// number of floats of a vector.
[[gnu::noinline]] inline void transpose_rows(const float* from, std::size_t rows,
                                             std::size_t columns, float* to, std::size_t to_row) {
  run_with_any_vectors<float>([&](auto bytes)
                                  __attribute__((always_inline, no_instrument_function)) {
                                    constexpr std::size_t lanes = lanes_of<float, bytes.value>;
                                    for (std::size_t i = 0; i < rows; i += lanes)
                                      for (std::size_t k = 0; k < columns; k += lanes) {
                                        Lanes<float, bytes.value> square[lanes];
#pragma GCC unroll 16
                                        for (std::size_t r = 0; r < lanes; ++r)
                                          load(square[r], from + (i + r) * columns + k);
                                        transpose_lanes(square);
#pragma GCC unroll 16
                                        for (std::size_t r = 0; r < lanes; ++r)
                                          store(to + (k + r) * to_row + i, square[r]);
                                      }
                                  });
}

/// sums[i] = the dot product of row i of a (count, row) and of b.
[[gnu::noinline]] inline void multiply_rows(const float* a, const float* b, std::size_t count,
                                            std::size_t row, float* sums) {
  run_with_any_vectors<float>([&](auto bytes)
                                  __attribute__((always_inline, no_instrument_function)) {
                                    using V = Lanes<float, bytes.value>;
                                    constexpr std::size_t lanes = lanes_of<float, bytes.value>;
                                    for (std::size_t i = 0; i < count; ++i) {
                                      V sum{}, v, w;
                                      for (std::size_t k = 0; k < row; k += lanes) {
                                        load(v, a + i * row + k);
                                        load(w, b + i * row + k);
                                        sum += v * w;
                                      }
                                      double total = 0;
                                      for (std::size_t l = 0; l < lanes; ++l)
                                        total += static_cast<double>(sum[l]);
                                      sums[i] = static_cast<float>(total);
                                    }
                                  });
}

}  // namespace lockstep::detail
