/// \file
/// UpSampling2D on the CPU in float: bilinear interpolation in vectors over channels, nearest by
/// copies. Other precisions use devices/host. Invariant: each output pixel, and in backward each
/// input pixel, is written by one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/devices/host/up_sampling2d.hpp"
#include "lockstep/layers/reshaping/up_sampling2d.hpp"

namespace lockstep {
namespace detail {

/// Bilinear forward: writes channels [first, last) of `rows` of y, which count over all examples.
template <std::size_t Width, class T>
[[gnu::always_inline, gnu::no_instrument_function]] inline void blend_rows(const UpSampling2DOp& op,
                                                                           Slice rows, int first,
                                                                           int last, const T* x,
                                                                           T* y) {
  using V = Lanes<T, Width>;
  const UpSamplingSizes n(op);
  const int width = op.in[1] * op.size.width;
  for (std::size_t r = rows.first; r < rows.first + rows.count; ++r) {
    const auto down =
        sample_point<T>(static_cast<int>(r % (n.rows * n.high)), op.size.height, op.in[0]);
    const T* const image = x + r / (n.rows * n.high) * n.rows * n.row;  // (rows, columns, channels)
    const T* const above = image + n.at(down.low) * n.row;
    const T* const below = image + n.at(down.high) * n.row;
    for (int c = 0; c < width; ++c) {
      const auto from = sample_point<T>(c, op.size.width, op.in[1]);
      const std::size_t low = n.at(from.low) * n.channels, high = n.at(from.high) * n.channels;
      T* const to = y + r * n.wide_row + n.at(c) * n.channels;  // (channels)
      for (int k = first; k < last; k += lanes_of<T, Width>) {
        V upper, lower, right;
        // Horizontally in the rows above and below, then vertically between the two.
        load(upper, above + low + k);
        load(right, above + high + k);
        upper += (right - upper) * from.part;
        load(lower, below + low + k);
        load(right, below + high + k);
        lower += (right - lower) * from.part;
        upper += (lower - upper) * down.part;
        store(to + k, upper);
      }
    }
  }
}

/// Bilinear backward: scatters each dy of channels [first, last) to its four input pixels.
template <std::size_t Width, class T>
[[gnu::always_inline, gnu::no_instrument_function]] inline void spread_images(
    const UpSampling2DOp& op, Slice examples, int first, int last, const T* dy, T* dx) {
  using V = Lanes<T, Width>;
  const UpSamplingSizes n(op);
  const std::size_t height = n.rows * n.high;
  const int width = op.in[1] * op.size.width;
  for (std::size_t r = examples.first * height; r < (examples.first + examples.count) * height;
       ++r) {
    const auto down = sample_point<T>(static_cast<int>(r % height), op.size.height, op.in[0]);
    T* const image = dx + r / height * n.rows * n.row;  // (rows, columns, channels)
    T* const above = image + n.at(down.low) * n.row;
    T* const below = image + n.at(down.high) * n.row;
    for (int c = 0; c < width; ++c) {
      const auto from = sample_point<T>(c, op.size.width, op.in[1]);
      const std::size_t low = n.at(from.low) * n.channels, high = n.at(from.high) * n.channels;
      const T* const pixel = dy + r * n.wide_row + n.at(c) * n.channels;  // (channels)
      for (int k = first; k < last; k += lanes_of<T, Width>) {
        V gradient, upper, lower, sum;
        load(gradient, pixel + k);
        lower = gradient * down.part;
        upper = gradient - lower;
        const auto add = [&](T* to, const V& all, T part)
                             __attribute__((always_inline, no_instrument_function)) {
                               load(sum, to);
                               sum += all * part;
                               store(to, sum);
                             };
        // Sequential read-modify-writes: at the border, two of the four are the same pixel.
        add(above + low + k, upper, 1 - from.part);
        add(above + high + k, upper, from.part);
        add(below + low + k, lower, 1 - from.part);
        add(below + high + k, lower, from.part);
      }
    }
  }
}

/// Nearest interpolation: forward repeats pixels, backward sums the repetitions.
template <class D>
struct NearestUpSampling2D {
  using T = typename D::real;

  static void forward(const UpSampling2DOp& op, const Io<D>& io) {
    const UpSamplingSizes n(op);
    io.device.for_ranges(io.step.count * n.rows, n.grain, [&](Slice part) {
      for (std::size_t r = part.first; r < part.first + part.count; ++r)
        repeat_row(n, io.x[0] + r * n.row, io.y + r * n.high * n.wide_row);
    });
  }

  static void backward(const UpSampling2DOp& op, const Io<D>& io) {
    if (io.dx[0] == nullptr) return;
    const UpSamplingSizes n(op);
    io.device.for_ranges(io.step.count * n.rows, n.grain, [&](Slice part) {
      for (std::size_t r = part.first; r < part.first + part.count; ++r)
        sum_rows(n, io.dy + r * n.high * n.wide_row, io.dx[0] + r * n.row);
    });
  }

 private:
  /// Repeats a row x (columns, channels) into y (high, columns, wide, channels).
  static void repeat_row(const UpSamplingSizes& n, const T* x, T* y) {
    for (std::size_t c = 0; c < n.columns; ++c)
      for (std::size_t j = 0; j < n.wide; ++j)
        std::copy_n(x + c * n.channels, n.channels, y + (c * n.wide + j) * n.channels);
    for (std::size_t i = 1; i < n.high; ++i) std::copy_n(y, n.wide_row, y + i * n.wide_row);
  }
  /// The transpose of repeat_row: dx (columns, channels) from dy (high, columns, wide, channels).
  static void sum_rows(const UpSamplingSizes& n, const T* dy, T* dx) {
    std::fill_n(dx, n.row, T(0));
    for (std::size_t i = 0; i < n.high; ++i)
      for (std::size_t c = 0; c < n.columns; ++c)
        for (std::size_t j = 0; j < n.wide; ++j)
          for (std::size_t k = 0; k < n.channels; ++k)
            dx[c * n.channels + k] += dy[i * n.wide_row + (c * n.wide + j) * n.channels + k];
  }
};

}  // namespace detail

template <class P>
  requires(std::is_same_v<ActivationOf<BasicCpu<P>>, typename BasicCpu<P>::real>)
struct Kernel<UpSampling2DOp, BasicCpu<P>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCpu<P>;
  using T = typename D::real;
  using Nearest = detail::NearestUpSampling2D<D>;

  /// Threads split the rows of y: every output pixel depends on x only.
  static void forward(const UpSampling2DOp& op, const Io<D>& io) {
    if (op.interpolation == Interpolation::nearest) return Nearest::forward(op, io);
    const detail::UpSamplingSizes n(op);
    io.device.for_ranges(io.step.count * n.rows * n.high, n.grain * n.high, [&](Slice rows) {
      detail::for_channels<T>(detail::has_vectors(), op.in[2],
                              [&](auto bytes, int first, int last)
                                  __attribute__((always_inline, no_instrument_function)) {
                                    detail::blend_rows<bytes.value>(op, rows, first, last, io.x[0],
                                                                    io.y);
                                  });
    });
  }
  /// Threads split the examples: neighbouring rows of dy scatter to the same rows of dx.
  static void backward(const UpSampling2DOp& op, const Io<D>& io) {
    if (io.dx[0] == nullptr) return;
    if (op.interpolation == Interpolation::nearest) return Nearest::backward(op, io);
    const detail::UpSamplingSizes n(op);
    const std::size_t size = op.in.size();
    io.device.for_ranges(io.step.count, n.grain / n.rows + 1, [&](Slice examples) {
      std::fill_n(io.dx[0] + examples.first * size, examples.count * size, T(0));
      detail::for_channels<T>(detail::has_vectors(), op.in[2],
                              [&](auto bytes, int first, int last)
                                  __attribute__((always_inline, no_instrument_function)) {
                                    detail::spread_images<bytes.value>(op, examples, first, last,
                                                                       io.dy, io.dx[0]);
                                  });
    });
  }
};

static_assert(HasKernel<UpSampling2DOp, Cpu>);

}  // namespace lockstep
