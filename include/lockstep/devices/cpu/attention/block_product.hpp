/// \file
/// Products of small matrices that lie in the first two levels of cache, in register tiles: the
/// blocks of attention. oneDNN's product copies its operands and costs more than such a product.
///
///     c (rows, columns) = [c +] a (rows, depth) b (depth, columns)
///
///     tile: R rows x 2 vectors of c in registers; a is read element by element, b by vectors
///
/// Invariant: the products of an element of c are added in the order of depth.
#pragma once

#include <cstddef>

#include "lockstep/devices/cpu/exponentials.hpp"
#include "lockstep/devices/cpu/lanes.hpp"

namespace lockstep::detail {

/// Rows of a tile, for vectors of `bytes` bytes. It divides the number of floats of a vector, so that
/// a size rounded up to whole vectors is one of whole tiles.
constexpr std::size_t tile_rows(std::size_t bytes) { return bytes == 64 ? 8 : 4; }

/// The operands of a product. The numbers of rows and columns are multiples of the number of floats
/// of a vector. Element (r, k) of a is a[r * a_row + k * a_column], so a may be transposed; rows of b
/// and c are b_row and c_row floats apart.
struct BlockProduct {
  std::size_t rows, columns, depth;
  const float* a;
  std::size_t a_row, a_column;
  const float* b;
  std::size_t b_row;
  float* c;
  std::size_t c_row;
};

/// The rows of one tile and W vectors of columns.
template <std::size_t Bytes, int W, bool Add>
[[gnu::always_inline, gnu::no_instrument_function]] inline void multiply_tile(
    const float* a, std::size_t a_row, std::size_t a_column, const float* b, std::size_t b_row,
    float* c, std::size_t c_row, std::size_t depth) {
  using V = Lanes<float, Bytes>;
  constexpr std::size_t lanes = lanes_of<float, Bytes>, rows = tile_rows(Bytes);
  V sum[rows][std::size_t{W}] = {};
  if constexpr (Add) {
#pragma GCC unroll 8
    for (std::size_t r = 0; r < rows; ++r)
#pragma GCC unroll 2
      for (std::size_t w = 0; w < W; ++w) load(sum[r][w], c + r * c_row + w * lanes);
  }
  for (std::size_t k = 0; k < depth; ++k) {
    V values[std::size_t{W}];
#pragma GCC unroll 2
    for (std::size_t w = 0; w < W; ++w) load(values[w], b + w * lanes);
#pragma GCC unroll 8
    for (std::size_t r = 0; r < rows; ++r) {
      const float factor = a[r * a_row];
#pragma GCC unroll 2
      for (std::size_t w = 0; w < W; ++w) sum[r][w] += factor * values[w];
    }
    a += a_column;
    b += b_row;
  }
#pragma GCC unroll 8
  for (std::size_t r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (std::size_t w = 0; w < W; ++w) store(c + r * c_row + w * lanes, sum[r][w]);
}

/// c = a b, or c += a b.
template <bool Add>
[[gnu::noinline]] void multiply_blocks(const BlockProduct& p) {
  run_with_any_vectors<float>([&](auto bytes) __attribute__((always_inline,
                                                             no_instrument_function)) {
    constexpr std::size_t lanes = lanes_of<float, bytes.value>, rows = tile_rows(bytes.value);
    std::size_t column = 0;
    const auto panel = [&](auto vectors) __attribute__((always_inline, no_instrument_function)) {
      for (std::size_t row = 0; row < p.rows; row += rows)
        multiply_tile<bytes.value, vectors.value, Add>(
            p.a + row * p.a_row, p.a_row, p.a_column, p.b + column, p.b_row,
            p.c + row * p.c_row + column, p.c_row, p.depth);
      column += std::size_t{vectors.value} * lanes;
    };
    while (column + 2 * lanes <= p.columns) panel(Constant<2>{});
    if (column < p.columns) panel(Constant<1>{});
  });
}

}  // namespace lockstep::detail
