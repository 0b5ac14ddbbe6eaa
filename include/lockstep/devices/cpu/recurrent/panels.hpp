/// \file
/// Products with a matrix packed in panels, for the small matrices that a recurrent layer multiplies
/// in each step. oneDNN would pack them in each call.
///
///     b (depth, columns) | 32 columns | 32 columns | rest |     each panel is contiguous: (depth, 32)
///     c                    tiles of 8 rows x 32 columns in registers
///
/// Invariant: the products of an element are added in the order of the depth, so its bits do not
/// depend on the number of rows.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/devices/cpu/exponentials.hpp"
#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/devices/cpu/register_tile.hpp"

namespace lockstep::detail {

/// Columns of a panel. Those beyond the matrix are zeros.
inline constexpr std::size_t panel_columns = 32;
/// Columns of c are written in multiples of this number.
inline constexpr std::size_t column_step = 16;

constexpr std::size_t padded_columns(std::size_t columns) {
  return (columns + column_step - 1) / column_step * column_step;
}
/// Floats of a packed matrix.
constexpr std::size_t panels_size(std::size_t depth, std::size_t columns) {
  return (columns + panel_columns - 1) / panel_columns * panel_columns * depth;
}

/// A matrix of floats whose element (r, k) is at data[r * row + k * column].
struct StridedMatrix {
  const float* data;
  std::size_t row, column;
};

/// Packs b (depth, columns).
inline void pack_panels(const StridedMatrix& b, std::size_t depth, std::size_t columns, float* to) {
  for (std::size_t first = 0; first < columns; first += panel_columns) {
    const std::size_t width = std::min(panel_columns, columns - first);
    for (std::size_t k = 0; k < depth; ++k, to += panel_columns) {
      const float* const from = b.data + k * b.row + first * b.column;
      for (std::size_t j = 0; j < width; ++j) to[j] = from[j * b.column];
      std::fill(to + width, to + panel_columns, 0.0f);
    }
  }
}

/// All rows of W vectors of columns.
template <int W, std::size_t Width>
[[gnu::always_inline, gnu::no_instrument_function]] inline void multiply_columns(
    std::size_t rows, const StridedMatrix& a, std::size_t depth, const float* b, float* c,
    std::size_t c_row, bool adds) {
  constexpr int tall = Width == 64 ? 8 : 4;
  std::size_t r = 0;
  const auto tiles = [&](auto size) __attribute__((always_inline, no_instrument_function)) {
    constexpr int R = size.value;
    for (; r + R <= rows; r += R)
      multiply_tile<R, W, Width>(a.data + r * a.row, a.row, a.column, depth, b, panel_columns,
                                 c + r * c_row, c_row, adds);
  };
  tiles(Bytes<tall>{});
  if constexpr (tall > 4) tiles(Bytes<4>{});
  tiles(Bytes<2>{});
  tiles(Bytes<1>{});
}

/// c (rows, columns) = a (rows, depth) b, or c += a b if `adds`; b is packed. Writes whole multiples
/// of column_step columns.
[[gnu::noinline]] inline void multiply_panels(std::size_t rows, std::size_t depth,
                                              std::size_t columns, const StridedMatrix& a,
                                              const float* b, float* c, std::size_t c_row,
                                              bool adds) {
  run_with_any_vectors<float>(
      [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
        constexpr std::size_t width = bytes.value, lanes = lanes_of<float, width>;
        columns = padded_columns(columns);
        for (std::size_t j = 0; j < columns;) {
          const float* const at = b + j / panel_columns * panel_columns * depth + j % panel_columns;
          if (j + 2 * lanes <= columns) {
            multiply_columns<2, width>(rows, a, depth, at, c + j, c_row, adds);
            j += 2 * lanes;
          } else {
            multiply_columns<1, width>(rows, a, depth, at, c + j, c_row, adds);
            j += lanes;
          }
        }
      });
}

}  // namespace lockstep::detail
