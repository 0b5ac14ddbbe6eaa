/// \file
/// UpSampling2D on every device over host memory. Invariant: each output pixel is written by one
/// thread, so the bits do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/ranges.hpp"
#include "lockstep/layers/reshaping/up_sampling2d.hpp"

namespace lockstep {
namespace detail {

/// Extents and strides of the loops, in elements unless noted otherwise.
struct UpSamplingSizes {
  explicit UpSamplingSizes(const UpSampling2DOp& op)
      : rows(at(op.in[0])),
        columns(at(op.in[1])),
        channels(at(op.in[2])),
        high(at(op.size.height)),
        wide(at(op.size.width)) {}
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  std::size_t rows, columns, channels, high, wide;  // extents of x; vertical, horizontal factor
  std::size_t row = columns * channels;             // one row of x
  std::size_t wide_row = row * wide;                // one row of y
  std::size_t grain = (1 << 14) / (wide_row * high) + 1;  // minimum rows of x per thread
};

/// Nearest and bilinear interpolation for any element type. Backward gathers the terms of each dx
/// rather than scattering dy, so that each sum is rounded once.
template <class D>
struct HostUpSampling2D : KernelTraits {
  using T = typename D::real;
  using A = ActivationOf<D>;

  static void forward(const UpSampling2DOp& op, const Io<D>& io) {
    const UpSamplingSizes n(op);
    for_ranges(io.device, io.step.count * n.rows, n.grain, [&](Slice part) {
      for (std::size_t r = part.first * n.high; r < (part.first + part.count) * n.high; ++r) {
        const A* const image = io.x[0] + r / (n.rows * n.high) * n.rows * n.row;
        const auto down =
            from(op, static_cast<int>(r % (n.rows * n.high)), op.size.height, op.in[0]);
        const A* const above = image + n.at(down.low) * n.row;   // (columns, channels)
        const A* const below = image + n.at(down.high) * n.row;  // (columns, channels)
        for (int c = 0; c < op.in[1] * op.size.width; ++c) {
          const auto across = from(op, c, op.size.width, op.in[1]);
          const std::size_t low = n.at(across.low) * n.channels,
                            high = n.at(across.high) * n.channels;
          A* const pixel = io.y + r * n.wide_row + n.at(c) * n.channels;  // (channels)
          for (std::size_t k = 0; k < n.channels; ++k) {
            const T upper = blend(above[low + k], above[high + k], across.part),
                    lower = blend(below[low + k], below[high + k], across.part);
            pixel[k] = static_cast<A>(upper + (lower - upper) * down.part);
          }
        }
      }
    });
  }

  static void backward(const UpSampling2DOp& op, const Io<D>& io) {
    if (io.dx[0] == nullptr) return;
    const UpSamplingSizes n(op);
    for_ranges(io.device, io.step.count * n.rows, n.grain, [&](Slice part) {
      for (std::size_t r = part.first; r < part.first + part.count; ++r) {
        const A* const dy = io.dy + r / n.rows * n.rows * n.high * n.wide_row;  // dy of the image
        for (int c = 0; c < op.in[1]; ++c)
          for (std::size_t k = 0; k < n.channels; k += block)
            gather(op, n, dy, static_cast<int>(r % n.rows), c, k, std::min(block, n.channels - k),
                   io.dx[0] + r * n.row + n.at(c) * n.channels + k);
      }
    });
  }

 private:
  static constexpr std::size_t block = 64;  // channels accumulated per pass

  static T blend(A low, A high, T part) {
    const T from = static_cast<T>(low);
    return from + (static_cast<T>(high) - from) * part;
  }
  static SamplePoint<T> from(const UpSampling2DOp& op, int i, int factor, int extent) {
    return op.interpolation == Interpolation::nearest ? SamplePoint<T>{i / factor, i / factor, T(0)}
                                                      : sample_point<T>(i, factor, extent);
  }
  /// Weight of input pixel `at` in an output pixel with the neighbours `from`, along one axis.
  static T share(const SamplePoint<T>& from, int at) {
    return (from.low == at ? 1 - from.part : T(0)) + (from.high == at ? from.part : T(0));
  }

  /// Writes dx (count): channels [first, first + count) of input pixel (row, column). Only output
  /// pixels within one input pixel of it, along each axis, have a share in it.
  static void gather(const UpSampling2DOp& op, const UpSamplingSizes& n, const A* dy, int row,
                     int column, std::size_t first, std::size_t count, A* dx) {
    std::array<T, block> sum{};
    const auto [high, wide] = std::pair(op.size.height, op.size.width);
    for (int r = std::max(0, (row - 1) * high); r < std::min(op.in[0], row + 2) * high; ++r) {
      const T of_row = share(from(op, r, high, op.in[0]), row);
      if (of_row == 0) continue;
      for (int c = std::max(0, (column - 1) * wide); c < std::min(op.in[1], column + 2) * wide;
           ++c) {
        const T part = of_row * share(from(op, c, wide, op.in[1]), column);
        const A* const pixel = dy + n.at(r) * n.wide_row + n.at(c) * n.channels + first;
        for (std::size_t k = 0; k < count; ++k) sum[k] += part * static_cast<T>(pixel[k]);
      }
    }
    for (std::size_t k = 0; k < count; ++k) dx[k] = static_cast<A>(sum[k]);
  }
};

}  // namespace detail

template <HostDevice D>
struct Kernel<UpSampling2DOp, D> : detail::HostUpSampling2D<D> {
  using library_kernel = Kernel;
};

}  // namespace lockstep
