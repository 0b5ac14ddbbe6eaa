/// \file
/// The loop over kernel taps shared by all convolutions of the reference device.
#pragma once

#include <cstddef>

#include "lockstep/layers/sliding_window.hpp"

namespace lockstep::detail {

/// Calls body(input pixel, kernel tap, output pixel) for each product of a convolution of `count`
/// volumes. Taps that fall into the padding are skipped.
template <class Body>
void for_each_tap(const Window& depths, const Window& rows, const Window& columns,
                  std::size_t count, const Body& body) {
  const auto pixel = [](int row, int column, int width) {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(width) +
           static_cast<std::size_t>(column);
  };
  const int volumes = static_cast<int>(count), slices = depths.out(), height = rows.out(),
            width = columns.out();
  for (int n = 0; n < volumes; ++n)
    for (int z = 0; z < slices; ++z)
      for (int r = 0; r < height; ++r)
        for (int c = 0; c < width; ++c)
          for (int h = 0; h < depths.kernel; ++h) {
            const int slice = z * depths.stride + h * depths.dilation - depths.before();
            if (slice < 0 || slice >= depths.in) continue;
            for (int i = 0; i < rows.kernel; ++i) {
              const int row = r * rows.stride + i * rows.dilation - rows.before();
              if (row < 0 || row >= rows.in) continue;
              for (int j = 0; j < columns.kernel; ++j) {
                const int column = c * columns.stride + j * columns.dilation - columns.before();
                if (column < 0 || column >= columns.in) continue;
                body(pixel((n * depths.in + slice) * rows.in + row, column, columns.in),
                     pixel(h * rows.kernel + i, j, columns.kernel),
                     pixel((n * slices + z) * height + r, c, width));
              }
            }
          }
}

/// The same for images.
template <class Body>
void for_each_tap(const Window& rows, const Window& columns, std::size_t count, const Body& body) {
  for_each_tap(Window{}, rows, columns, count, body);
}

/// The same for the op of a convolution over images or volumes.
template <class Op, class Body>
void for_each_tap(const Op& op, std::size_t count, const Body& body) {
  if constexpr (requires { op.depths(); })
    for_each_tap(op.depths(), op.rows(), op.columns(), count, body);
  else
    for_each_tap(op.rows(), op.columns(), count, body);
}

}  // namespace lockstep::detail
