/// \file
/// A tile of a product of matrices, in registers.
///
///     c (R, W vectors) = [c +] a (R, depth) b (depth, W vectors)      a is read element by element
///
/// Invariant: the products of an element of c are added in the order of depth.
#pragma once

#include <cstddef>

#include "lockstep/devices/cpu/lanes.hpp"

namespace lockstep::detail {

/// Element (r, k) of a is a[r * a_row + k * a_column], so a may be transposed; rows of b and c are
/// b_row and c_row floats apart.
template <int R, int W, std::size_t Bytes>
[[gnu::always_inline, gnu::no_instrument_function]] inline void multiply_tile(
    const float* a, std::size_t a_row, std::size_t a_column, std::size_t depth, const float* b,
    std::size_t b_row, float* c, std::size_t c_row, bool adds) {
  using V = Lanes<float, Bytes>;
  constexpr std::size_t lanes = lanes_of<float, Bytes>;
  V sum[std::size_t{R}][std::size_t{W}] = {};
  if (adds) {
#pragma GCC unroll 8
    for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (std::size_t w = 0; w < W; ++w) load(sum[r][w], c + r * c_row + w * lanes);
  }
  for (; depth > 0; --depth, a += a_column, b += b_row) {
    V values[std::size_t{W}];
#pragma GCC unroll 2
    for (std::size_t w = 0; w < W; ++w) load(values[w], b + w * lanes);
#pragma GCC unroll 8
    for (std::size_t r = 0; r < R; ++r) {
      const float factor = a[r * a_row];
#pragma GCC unroll 2
      for (std::size_t w = 0; w < W; ++w) sum[r][w] += factor * values[w];
    }
  }
#pragma GCC unroll 8
  for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (std::size_t w = 0; w < W; ++w) store(c + r * c_row + w * lanes, sum[r][w]);
}

}  // namespace lockstep::detail
