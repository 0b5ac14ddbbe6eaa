/// \file
/// The loop over kernel taps shared by all convolutions of the reference device.
#pragma once

#include <cstddef>

#include "lockstep/layers/sliding_window.hpp"

namespace lockstep::detail {

/// Calls body(input pixel, kernel tap, output pixel) for each product of a convolution of `count`
/// examples. Taps that fall into the padding are skipped.
template <class Body>
void for_each_tap(const Window& rows, const Window& columns, std::size_t count, const Body& body) {
  const auto pixel = [](int row, int column, int width) {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(width) +
           static_cast<std::size_t>(column);
  };
  const int examples = static_cast<int>(count), height = rows.out(), width = columns.out();
  for (int n = 0; n < examples; ++n)
    for (int r = 0; r < height; ++r)
      for (int c = 0; c < width; ++c)
        for (int i = 0; i < rows.kernel; ++i) {
          const int row = r * rows.stride + i * rows.dilation - rows.before();
          if (row < 0 || row >= rows.in) continue;
          for (int j = 0; j < columns.kernel; ++j) {
            const int column = c * columns.stride + j * columns.dilation - columns.before();
            if (column < 0 || column >= columns.in) continue;
            body(pixel(n * rows.in + row, column, columns.in), pixel(i, j, columns.kernel),
                 pixel(n * height + r, c, width));
          }
        }
}

}  // namespace lockstep::detail
