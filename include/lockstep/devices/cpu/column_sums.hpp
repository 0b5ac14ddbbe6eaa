/// \file
/// Sums over the rows of a matrix, which are the gradients of biases. oneDNN accumulates millions
/// of rows in one float per column. Invariant: a float accumulates at most 16 terms, and these
/// partial sums are added in double, so the error is below 1e-6 of the sum of magnitudes for any
/// number of rows.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/devices/cpu/openmp.hpp"

namespace lockstep::detail {

/// sums[k] += the sum over rows of x (rows, columns), for columns k in [first, last). Two
/// accumulators per vector hide the latency of an addition.
template <std::size_t Width, class A>
[[gnu::always_inline, gnu::no_instrument_function]] inline void add_rows(
    const A* x, std::size_t rows, std::size_t columns, std::size_t first, std::size_t last,
    double* sums) {
  using T = typename ComputedIn<A>::type;
  using V = Lanes<T, Width>;
  constexpr std::size_t lanes = lanes_of<T, Width>, tall = 16;
  for (std::size_t k = first; k < last; k += lanes) {
    const A* at = x + k;
    double sum[lanes];
    for (std::size_t j = 0; j < lanes; ++j) sum[j] = sums[k + j];
    for (std::size_t row = 0; row < rows; row += tall) {
      const std::size_t count = std::min(tall, rows - row);
      V even{}, odd{}, v;
      std::size_t i = 0;
      for (; i + 2 <= count; i += 2, at += 2 * columns) {
        load(v, at);
        even += v;
        load(v, at + columns);
        odd += v;
      }
      if (i < count) {
        load(v, at);
        even += v;
        at += columns;
      }
      even += odd;
      add_lanes<T>(sum, even);
    }
    for (std::size_t j = 0; j < lanes; ++j) sums[k + j] = sum[j];
  }
}

/// Bytes of scratch that column_sums needs.
constexpr std::size_t column_sums_bytes(int threads, std::size_t columns) {
  return static_cast<std::size_t>(threads) * ((columns + 15) / 8 * 8) * sizeof(double);
}

/// to[k] = the sum over rows of x (rows, columns), on all threads. Each thread sums a range of rows
/// into scratch; the threads' sums are then added in thread order.
template <class A, class T>
[[gnu::noinline]] void column_sums(int threads, const A* x, std::size_t rows, std::size_t columns,
                                   T* to, std::byte* scratch) {
  // Padded to whole cache lines and one more, so that no two threads share a line.
  const std::size_t stride = (columns + 15) / 8 * 8, parts = static_cast<std::size_t>(threads);
  double* const sums = reinterpret_cast<double*>(scratch);  // (parts, stride)
  std::fill_n(sums, parts * stride, 0.0);
  // Blocks of 16 KiB of floats stay in the first-level cache while all their columns are summed.
  const std::size_t block = std::max<std::size_t>(16, 4096 / columns / 16 * 16);
  parallel_ranges(threads, rows, parallel_grain(columns), [&](Slice mine, std::size_t index) {
    for (std::size_t row = mine.first; row < mine.first + mine.count; row += block) {
      const std::size_t count = std::min(block, mine.first + mine.count - row);
      for_channels_of<typename ComputedIn<A>::type>(
          longest_vectors<A>(), columns,
          [&](auto bytes, std::size_t first, std::size_t last)
              __attribute__((always_inline, no_instrument_function)) {
                add_rows<bytes.value>(x + row * columns, count, columns, first, last,
                                      sums + index * stride);
              });
    }
  });
  for (std::size_t k = 0; k < columns; ++k) {
    double sum = 0;
    for (std::size_t p = 0; p < parts; ++p) sum += sums[p * stride + k];
    to[k] = static_cast<T>(sum);
  }
}

}  // namespace lockstep::detail
