/// \file
/// RandomCrop on every device over host memory: a random window in training if the image is large
/// enough, otherwise the centre crop, resized. Invariant: the window's row, then its column, are
/// drawn by `below` from the example's stream.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/images/image_sampling.hpp"
#include "lockstep/layers/preprocessing/random_crop.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<RandomCropOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  using A = detail::ElementOf<D>;
  using Prepared = detail::ImageSums<D>;

  static Prepared prepare(const RandomCropOp& op, typename D::Context&, std::size_t) {
    return {op.in.size()};
  }

  static void forward(const RandomCropOp& op, const Io<D>& io, Prepared&) {
    if (draws_windows(op, io))
      for_each_row(op, io, [&](std::size_t large, std::size_t small, std::size_t length) {
        std::copy_n(io.x[0] + large, length, io.y + small);
      });
    else
      for (std::size_t n = 0; n < io.step.count; ++n)
        for_each_pixel(op, n, [&](std::size_t pixel, const auto&... taps) {
          detail::sample_pixel<T>(io.x[0] + n * op.in.size(), op.in, taps..., 0, io.y + pixel);
        });
  }

  /// Draws the window again rather than saving it from forward.
  static void backward(const RandomCropOp& op, const Io<D>& io, Prepared& sums) {
    if (io.dx[0] == nullptr) return;
    if (draws_windows(op, io)) {
      std::fill_n(io.dx[0], io.step.count * op.in.size(), A(0));
      for_each_row(op, io, [&](std::size_t large, std::size_t small, std::size_t length) {
        std::copy_n(io.dy + small, length, io.dx[0] + large);
      });
      return;
    }
    for (std::size_t n = 0; n < io.step.count; ++n)
      sums.gather(io, n, [&](T* dx) {
        for_each_pixel(op, n, [&](std::size_t pixel, const auto&... taps) {
          detail::scatter_pixel(io.dy + pixel, op.in, taps..., dx);
        });
      });
  }

 private:
  static bool draws_windows(const RandomCropOp& op, const Io<D>& io) {
    return io.step.training && op.fits();
  }

  /// Calls row(offset in x, offset in y, elements) for each row of the randomly placed windows.
  template <class Row>
  static void for_each_row(const RandomCropOp& op, const Io<D>& io, const Row& row) {
    const auto channels = static_cast<std::size_t>(op.in[2]);
    const std::size_t length = static_cast<std::size_t>(op.width) * channels;
    std::size_t small = 0;
    for (std::size_t n = 0; n < io.step.count; ++n) {
      Philox draws = detail::example_noise(io, n);
      const std::size_t top = draws.below(static_cast<std::uint32_t>(op.in[0] - op.height + 1));
      const std::size_t left = draws.below(static_cast<std::uint32_t>(op.in[1] - op.width + 1));
      for (std::size_t r = 0; r < static_cast<std::size_t>(op.height); ++r, small += length)
        row(n * op.in.size() + ((top + r) * static_cast<std::size_t>(op.in[1]) + left) * channels,
            small, length);
    }
  }

  /// Calls f(offset of the output pixel, row taps, column taps) for the centre of image n, resized.
  template <class F>
  static void for_each_pixel(const RandomCropOp& op, std::size_t n, const F& f) {
    const ImagePart window = op.middle();
    const auto channels = static_cast<std::size_t>(op.in[2]);
    std::size_t pixel = n * op.out().size();
    for (int r = 0; r < op.height; ++r)
      for (int c = 0; c < op.width; ++c, pixel += channels)
        f(pixel, taps(r, op.height, window.row, window.height),
          taps(c, op.width, window.column, window.width));
  }
  /// Half-pixel centres: output pixel i is sampled at (i + 1/2) extent / to - 1/2 of the window.
  static detail::AxisTaps taps(int place, int to, int begin, int extent) {
    const double at = (place + 0.5) * (static_cast<double>(extent) / to) - 0.5;
    detail::AxisTaps taps =
        detail::axis_taps(at, extent, FillMode::nearest, Interpolation::bilinear);
    for (auto& one : taps.index) one += begin;
    return taps;
  }
};

}  // namespace lockstep
