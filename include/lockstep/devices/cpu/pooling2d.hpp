/// \file
/// The walk over pooling windows that max and average pooling share. Invariant: the taps of a
/// window are cut at the image's border, so padding is never seen.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/devices/cpu/threads.hpp"
#include "lockstep/layers/pooling2d.hpp"

namespace lockstep::detail {

/// Where one window lies: taps [first_row, last_row) x [first_column, last_column) of the pool;
/// `in` is the pixel of tap (0, 0), perhaps outside, `out` that of the result.
struct PoolingTaps {
  int first_row, last_row, first_column, last_column;
  std::ptrdiff_t in, out;
  int count() const { return (last_row - first_row) * (last_column - first_column); }
};

/// body(taps) for each window of the examples [first, first + count), row by row.
template <class Body>
[[gnu::always_inline]] inline void for_each_window(const Pooling2DWindow& window, Slice examples,
                                                   const Body& body) {
  const Window rows = window.rows(), columns = window.columns();
  const int height = rows.out(), width = columns.out();
  for (std::size_t n = examples.first; n < examples.first + examples.count; ++n)
    for (int r = 0; r < height; ++r) {
      const int top = r * rows.stride - rows.before();
      for (int c = 0; c < width; ++c) {
        const int left = c * columns.stride - columns.before();
        const auto example = static_cast<std::ptrdiff_t>(n);
        body(PoolingTaps{std::max(0, -top), std::min(rows.kernel, rows.in - top),
                         std::max(0, -left), std::min(columns.kernel, columns.in - left),
                         (example * rows.in + top) * columns.in + left,
                         (example * height + r) * width + c});
      }
    }
}

/// Whether each pixel of the image lies in exactly one window.
constexpr bool tiles(const Pooling2DWindow& window) {
  const auto tile = [](const Window& w) {
    return w.stride == w.kernel && w.in == w.out() * w.stride;
  };
  return tile(window.rows()) && tile(window.columns());
}

}  // namespace lockstep::detail
