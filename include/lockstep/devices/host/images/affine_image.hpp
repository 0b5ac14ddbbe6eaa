/// \file
/// RandomRotation, RandomTranslation and RandomZoom on every device over host memory. Invariant: an
/// op's affine map is a function of the first two uniform draws of the example's stream.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/images/image_sampling.hpp"
#include "lockstep/layers/preprocessing/affine_image.hpp"

namespace lockstep {

template <AffineImageOp Op, HostDevice D>
struct Kernel<Op, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  using Prepared = detail::ImageSums<D>;

  static Prepared prepare(const Op& op, typename D::Context&, std::size_t) {
    return {op.in.size()};
  }

  static void forward(const Op& op, const Io<D>& io, Prepared&) {
    if (!io.step.training) {
      std::copy_n(io.x[0], io.step.count * op.in.size(), io.y);
      return;
    }
    for (std::size_t n = 0; n < io.step.count; ++n)
      for_each_pixel(op, io, n, [&](std::size_t pixel, const auto&... taps) {
        detail::sample_pixel<T>(io.x[0] + n * op.in.size(), op.in, taps..., op.fill.value,
                                io.y + pixel);
      });
  }

  /// Draws the map again rather than saving it from forward.
  static void backward(const Op& op, const Io<D>& io, Prepared& sums) {
    if (io.dx[0] == nullptr) return;
    for (std::size_t n = 0; n < io.step.count; ++n)
      sums.gather(io, n, [&](T* dx) {
        for_each_pixel(op, io, n, [&](std::size_t pixel, const auto&... taps) {
          detail::scatter_pixel(io.dy + pixel, op.in, taps..., dx);
        });
      });
  }

 private:
  /// Calls f(offset of the output pixel, row taps, column taps) for each pixel of image n.
  template <class F>
  static void for_each_pixel(const Op& op, const Io<D>& io, std::size_t n, const F& f) {
    const auto channels = static_cast<std::size_t>(op.in[2]);
    Philox draws = detail::example_noise(io, n);
    const double first = draws.uniform(), second = draws.uniform();
    const AffineMap m = op.map(first, second);
    std::size_t pixel = n * op.in.size();
    for (int r = 0; r < op.in[0]; ++r)
      for (int c = 0; c < op.in[1]; ++c, pixel += channels)
        f(pixel, taps(op, m.yx * c + m.yy * r + m.y0, op.in[0]),
          taps(op, m.xx * c + m.xy * r + m.x0, op.in[1]));
  }
  static detail::AxisTaps taps(const Op& op, double at, int extent) {
    return detail::axis_taps(at, extent, op.fill.mode, op.interpolation);
  }
};

}  // namespace lockstep
