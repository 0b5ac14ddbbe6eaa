/// \file
/// Products of small matrices that lie in the first two levels of cache, in register tiles: the
/// blocks of attention. oneDNN's product copies its operands and costs more than such a product.
///
///     c (rows, columns) = [c +] a (rows, depth) b (depth, columns)
#pragma once

#include <cstddef>

#include "lockstep/devices/cpu/exponentials.hpp"
#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/devices/cpu/register_tile.hpp"

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

/// c = a b, or c += a b.
template <bool Add>
[[gnu::noinline]] void multiply_blocks(const BlockProduct& p) {
  run_with_any_vectors<float>([&](auto bytes) __attribute__((always_inline,
                                                             no_instrument_function)) {
    constexpr std::size_t lanes = lanes_of<float, bytes.value>, rows = tile_rows(bytes.value);
    std::size_t column = 0;
    const auto panel = [&](auto vectors) __attribute__((always_inline, no_instrument_function)) {
      for (std::size_t row = 0; row < p.rows; row += rows)
        multiply_tile<int{rows}, vectors.value, bytes.value>(
            p.a + row * p.a_row, p.a_row, p.a_column, p.depth, p.b + column, p.b_row,
            p.c + row * p.c_row + column, p.c_row, Add);
      column += std::size_t{vectors.value} * lanes;
    };
    while (column + 2 * lanes <= p.columns) panel(Constant<2>{});
    if (column < p.columns) panel(Constant<1>{});
  });
}

}  // namespace lockstep::detail
