/// \file
/// The walk over pooling windows that max and average pooling share. Invariants: the taps of a
/// window are cut at the image's border, so padding is never seen; gradients of windows that
/// overlap are added in the type that activations are computed in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/devices/cpu/openmp.hpp"
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

/// Where the gradients of one example are added in each thread, if A is not computed in itself and
/// windows overlap; else nothing.
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
  T* of_thread(std::byte* scratch, std::size_t thread) const {
    return reinterpret_cast<T*>(scratch) + thread * size_;
  }

 private:
  std::size_t threads_ = 0, size_ = 0;
};

/// add(n, examples, only_writer, dx) on all threads, for the examples counted from example n on,
/// with which dx begins. It is zero unless `only_writer`, and may be of the type that A is computed
/// in.
template <class A, class D, class Add>
void pool_backward(const Pooling2DWindow& window, const Io<D>& io, const PoolingScratch<A>& scratch,
                   const Add& add) {
  using T = typename ComputedIn<A>::type;
  const std::size_t size = window.in.size();
  parallel_ranges(
      io.device.threads(), io.step.count, parallel_grain(size),
      [&](Slice examples, std::size_t thread) {
        if (tiles(window)) return add(std::size_t{0}, examples, true, io.dx);
        if constexpr (std::is_same_v<A, T>) {
          std::fill_n(io.dx + examples.first * size, examples.count * size, T(0));
          add(std::size_t{0}, examples, false, io.dx);
        } else {
          T* const sums = scratch.of_thread(io.scratch, thread);
          for (std::size_t n = examples.first; n < examples.first + examples.count; ++n) {
            std::fill_n(sums, size, T(0));
            add(n, Slice{0, 1}, false, sums);
            std::transform(sums, sums + size, io.dx + n * size, [](T v) { return A(v); });
          }
        }
      });
}

}  // namespace lockstep::detail
