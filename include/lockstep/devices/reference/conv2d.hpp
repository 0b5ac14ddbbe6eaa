/// \file
/// Conv2D, and what Conv3D has in common with it, on the reference device. With taps t, and within each group channels k and filters f, for
/// every input pixel i that tap t of output pixel o reads:
///
///     y[o, f] = b[f] + sum_(t, k) x[i, k] w[t, k, f]
///     dw[t, k, f] = sum_o x[i, k] dy[o, f],  dx[i, k] = sum_(t, f) w[t, k, f] dy[o, f]
#pragma once

#include <algorithm>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/double_sums.hpp"
#include "lockstep/devices/reference/convolution2d.hpp"
#include "lockstep/devices/reference/device.hpp"
#include "lockstep/layers/convolution/conv2d.hpp"

namespace lockstep {
namespace detail {

/// The kernel of the convolution Op.
template <class Op, class T>
struct ReferenceConvolution : KernelTraits {
  static constexpr bool keeps_x = true, skips_dw = true;
  using Prepared = DoubleSums<T>;

  static Prepared prepare(const Op& op, typename Reference<T>::Context&, std::size_t) {
    return Prepared(op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.filters) : 0));
  }

  static void forward(const Op& op, const Io<Reference<T>>& io, Prepared&) {
    const auto groups = static_cast<std::size_t>(op.groups),
               channels = static_cast<std::size_t>(op.group_channels()),
               filters = static_cast<std::size_t>(op.filters), each = filters / groups;
    const T* const bias = io.w + op.kernel_size();  // (filters)
    const std::size_t pixels = io.step.count * op.out().size() / filters;
    for (std::size_t i = 0; i < pixels; ++i)
      for (std::size_t f = 0; f < filters; ++f) io.y[i * filters + f] = op.bias ? bias[f] : T(0);
    for_each_tap(op, io.step.count, [&](std::size_t in, std::size_t tap, std::size_t out) {
      const T* const x = io.x[0] + in * groups * channels;      // (groups, channels)
      const T* const kernel = io.w + tap * channels * filters;  // (channels, filters)
      T* const y = io.y + out * filters;                        // (groups, each)
      for (std::size_t g = 0; g < groups; ++g)
        for (std::size_t k = 0; k < channels; ++k)
          for (std::size_t f = g * each; f < (g + 1) * each; ++f)
            y[f] += x[g * channels + k] * kernel[k * filters + f];
    });
  }

  static void backward(const Op& op, const Io<Reference<T>>& io, Prepared& sums) {
    const auto groups = static_cast<std::size_t>(op.groups),
               channels = static_cast<std::size_t>(op.group_channels()),
               filters = static_cast<std::size_t>(op.filters), each = filters / groups;
    double* const dw = sums.begin(io.dw);
    if (io.dx[0] != nullptr) std::fill_n(io.dx[0], io.step.count * op.in.size(), T(0));
    if (op.bias && dw) {
      double* const d_bias = dw + op.kernel_size();  // (filters)
      const std::size_t pixels = io.step.count * op.out().size() / filters;
      for (std::size_t i = 0; i < pixels; ++i)
        for (std::size_t f = 0; f < filters; ++f)
          d_bias[f] += static_cast<double>(io.dy[i * filters + f]);
    }
    for_each_tap(op, io.step.count, [&](std::size_t in, std::size_t tap, std::size_t out) {
      const T* const x = io.x[0] + in * groups * channels;                    // (groups, channels)
      const T* const dy = io.dy + out * filters;                              // (groups, each)
      const T* const kernel = io.w + tap * channels * filters;                // (channels, filters)
      double* const d_kernel = dw ? dw + tap * channels * filters : nullptr;  // (channels, filters)
      for (std::size_t g = 0; g < groups; ++g)
        for (std::size_t k = 0; k < channels; ++k) {
          const auto value = static_cast<double>(x[g * channels + k]);
          T sum = 0;
          for (std::size_t f = g * each; f < (g + 1) * each; ++f) {
            if (d_kernel) d_kernel[k * filters + f] += value * static_cast<double>(dy[f]);
            sum += kernel[k * filters + f] * dy[f];
          }
          if (io.dx[0] != nullptr) io.dx[0][(in * groups + g) * channels + k] += sum;
        }
    });
    sums.end(io.dw);
  }
};

}  // namespace detail

template <class T>
struct Kernel<Conv2DOp, Reference<T>> : detail::ReferenceConvolution<Conv2DOp, T> {
  using library_kernel = Kernel;
};

static_assert(HasKernel<Conv2DOp, Reference<double>>);

}  // namespace lockstep
