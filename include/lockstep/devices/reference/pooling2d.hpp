/// \file
/// The loop over pooling windows shared by max and average pooling on the reference device.
#pragma once

#include <cstddef>

#include "lockstep/layers/pooling/pooling2d.hpp"

namespace lockstep::detail {

/// Calls body(output element, taps) for each output element of `count` examples, in memory order.
/// `taps(f)` calls f(tap index, input element) for each tap of that element's window that lies
/// inside the image, in row-major order.
template <class Body>
void for_each_window(const Pooling2DWindow& window, std::size_t count, const Body& body) {
  const Window rows = window.rows(), columns = window.columns();
  const Shape out = window.out();
  const int channels = window.in[2];
  const auto element = [channels](std::size_t n, const Shape& s, int r, int c, int k) {
    const std::size_t row = n * static_cast<std::size_t>(s[0]) + static_cast<std::size_t>(r);
    const std::size_t pixel = row * static_cast<std::size_t>(s[1]) + static_cast<std::size_t>(c);
    return pixel * static_cast<std::size_t>(channels) + static_cast<std::size_t>(k);
  };
  for (std::size_t n = 0; n < count; ++n)
    for (int r = 0; r < out[0]; ++r)
      for (int c = 0; c < out[1]; ++c)
        for (int k = 0; k < channels; ++k)
          body(element(n, out, r, c, k), [&](const auto& f) {
            for (int i = 0; i < rows.kernel; ++i) {
              const int row = r * rows.stride + i - rows.before();
              if (row < 0 || row >= rows.in) continue;
              for (int j = 0; j < columns.kernel; ++j) {
                const int column = c * columns.stride + j - columns.before();
                if (column < 0 || column >= columns.in) continue;
                f(i * columns.kernel + j, element(n, window.in, row, column, k));
              }
            }
          });
}

}  // namespace lockstep::detail
