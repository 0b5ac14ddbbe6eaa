/// \file
/// The loop over pooling windows shared by max and average pooling on the CPU. Invariants: windows
/// are clipped to the image, so padding is never read; gradients of overlapping windows are added
/// in the compute type of the activations.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/devices/cpu/openmp.hpp"
#include "lockstep/layers/pooling/pooling2d.hpp"

namespace lockstep::detail {

/// A clipped window: taps [first_row, last_row) x [first_column, last_column) lie inside the image.
/// `in` is the pixel of tap (0, 0), which may be outside; `out` is the output pixel.
struct PoolingTaps {
  int first_row, last_row, first_column, last_column;
  std::ptrdiff_t in, out;
  int count() const { return (last_row - first_row) * (last_column - first_column); }
};

/// Calls body(PoolingTaps) for each window of `examples`, in row-major order.
template <class Body>
[[gnu::always_inline, gnu::no_instrument_function]] inline void for_each_window(
    const Pooling2DWindow& window, Slice examples, const Body& body) {
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

/// Whether each pixel of the image lies in exactly one window, so that each dx has one writer.
constexpr bool tiles(const Pooling2DWindow& window) {
  const auto tile = [](const Window& w) {
    return w.stride == w.kernel && w.in == w.out() * w.stride;
  };
  return tile(window.rows()) && tile(window.columns());
}

/// Scratch of each thread for the gradient sums of one example. Needed only if windows overlap and
/// activations are stored in a narrower type than they are computed in.
template <class A>
class PoolingScratch {
 public:
  using T = typename ComputedIn<A>::type;
  PoolingScratch(const Pooling2DWindow& window, int threads) {
    if (std::is_same_v<A, T> || tiles(window)) return;
    size_ = (window.in.size() + 15) / 16 * 16;
    threads_ = static_cast<std::size_t>(threads);
  }
  std::size_t scratch_bytes() const { return threads_ * size_ * sizeof(T); }
  /// The sums of `thread` in `scratch`.
  T* of_thread(std::byte* scratch, std::size_t thread) const {
    return reinterpret_cast<T*>(scratch) + thread * size_;
  }

 private:
  std::size_t threads_ = 0, size_ = 0;
};

/// Backward pass on all threads. Calls add(n, examples, only_writer, dx): dx begins at example n,
/// `examples` counts from there, and dx is zeroed unless `only_writer`. The element type of dx is A
/// or, for sums in scratch, the compute type of A.
template <class A, class D, class Add>
void pool_backward(const Pooling2DWindow& window, const Io<D>& io, const PoolingScratch<A>& scratch,
                   const Add& add) {
  using T = typename ComputedIn<A>::type;
  const std::size_t size = window.in.size();
  parallel_ranges(
      io.device.threads(), io.step.count, parallel_grain(size),
      [&](Slice examples, std::size_t thread) {
        if (tiles(window)) return add(std::size_t{0}, examples, true, io.dx[0]);
        if constexpr (std::is_same_v<A, T>) {
          std::fill_n(io.dx[0] + examples.first * size, examples.count * size, T(0));
          add(std::size_t{0}, examples, false, io.dx[0]);
        } else {
          T* const sums = scratch.of_thread(io.scratch, thread);
          for (std::size_t n = examples.first; n < examples.first + examples.count; ++n) {
            std::fill_n(sums, size, T(0));
            add(n, Slice{0, 1}, false, sums);
            std::transform(sums, sums + size, io.dx[0] + n * size, [](T v) { return A(v); });
          }
        }
      });
}

}  // namespace lockstep::detail
