/// \file
/// Resizing and CenterCrop on every device over host memory. Invariant: each output pixel is
/// written by one thread, and each gradient is summed in the order of the output pixels, so the
/// bits do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/images/image_sampling.hpp"
#include "lockstep/devices/host/ranges.hpp"
#include "lockstep/layers/preprocessing/resized_image.hpp"

namespace lockstep {
namespace detail {

/// The taps of all rows and columns of the result, and the sums of backward.
template <class D>
struct ResizedTaps : ImageSums<D> {
  template <ResizedImageOp Op>
  explicit ResizedTaps(const Op& op) : ImageSums<D>{op.in.size()} {
    const ImagePart window = op.window();
    const Shape out = op.out();
    rows = taps(out[0], window.row, window.height, op.interpolation);
    columns = taps(out[1], window.column, window.width, op.interpolation);
  }
  std::vector<AxisTaps> rows, columns;

 private:
  static std::vector<AxisTaps> taps(int out, int begin, int extent, Interpolation how) {
    std::vector<AxisTaps> all;
    for (int i = 0; i < out; ++i) {
      const ResizedPlace p = resized_place(i, out, extent, how);
      const double part = static_cast<double>(p.rest) / static_cast<double>(p.whole);
      all.push_back({{begin + p.low, begin + p.high}, {1 - part, part}});
    }
    return all;
  }
};

}  // namespace detail

template <ResizedImageOp Op, HostDevice D>
struct Kernel<Op, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  using Prepared = detail::ResizedTaps<D>;

  static Prepared prepare(const Op& op, typename D::Context&, std::size_t) { return Prepared(op); }

  static void forward(const Op& op, const Io<D>& io, Prepared& taps) {
    const std::size_t rows = taps.rows.size(), channels = static_cast<std::size_t>(op.in[2]),
                      length = taps.columns.size() * channels;
    detail::for_ranges(io.device, io.step.count * rows, (1 << 13) / length + 1, [&](Slice part) {
      for (std::size_t r = part.first; r < part.first + part.count; ++r)
        for (std::size_t c = 0; c < taps.columns.size(); ++c)
          detail::sample_pixel<T>(io.x[0] + r / rows * op.in.size(), op.in, taps.rows[r % rows],
                                  taps.columns[c], 0, io.y + r * length + c * channels);
    });
  }

  static void backward(const Op& op, const Io<D>& io, Prepared& taps) {
    if (io.dx[0] == nullptr) return;
    const auto channels = static_cast<std::size_t>(op.in[2]);
    for (std::size_t n = 0; n < io.step.count; ++n)
      taps.gather(io, n, [&](T* dx) {
        const auto* dy = io.dy + n * op.out().size();
        for (const detail::AxisTaps& row : taps.rows)
          for (const detail::AxisTaps& column : taps.columns) {
            detail::scatter_pixel(dy, op.in, row, column, dx);
            dy += channels;
          }
      });
  }
};

}  // namespace lockstep
