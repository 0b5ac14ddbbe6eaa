/// \file
/// DepthwiseConv2D on the reference device. Filter f reads channel f / multiplier only.
#pragma once

#include <algorithm>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/double_sums.hpp"
#include "lockstep/devices/reference/convolution2d.hpp"
#include "lockstep/devices/reference/device.hpp"
#include "lockstep/layers/convolution/depthwise_conv2d.hpp"

namespace lockstep {

template <class T>
struct Kernel<DepthwiseConv2DOp, Reference<T>> : KernelTraits {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = true, skips_dw = true;
  using Prepared = detail::DoubleSums<T>;

  static Prepared prepare(const DepthwiseConv2DOp& op, typename Reference<T>::Context&,
                          std::size_t) {
    return Prepared(op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.filters()) : 0));
  }

  static void forward(const DepthwiseConv2DOp& op, const Io<Reference<T>>& io, Prepared&) {
    const auto channels = static_cast<std::size_t>(op.channels()),
               each = static_cast<std::size_t>(op.multiplier), filters = channels * each;
    const T* const bias = io.w + op.kernel_size();  // (channels, each)
    const std::size_t pixels = io.step.count * op.out().size() / filters;
    for (std::size_t i = 0; i < pixels; ++i)
      for (std::size_t f = 0; f < filters; ++f) io.y[i * filters + f] = op.bias ? bias[f] : T(0);
    detail::for_each_tap(op.rows(), op.columns(), io.step.count,
                         [&](std::size_t in, std::size_t tap, std::size_t out) {
                           const T* const x = io.x[0] + in * channels;    // (channels)
                           const T* const kernel = io.w + tap * filters;  // (channels, each)
                           T* const y = io.y + out * filters;             // (channels, each)
                           for (std::size_t k = 0; k < channels; ++k)
                             for (std::size_t f = k * each; f < (k + 1) * each; ++f)
                               y[f] += x[k] * kernel[f];
                         });
  }

  static void backward(const DepthwiseConv2DOp& op, const Io<Reference<T>>& io, Prepared& sums) {
    const auto channels = static_cast<std::size_t>(op.channels()),
               each = static_cast<std::size_t>(op.multiplier), filters = channels * each;
    double* const dw = sums.begin(io.dw);
    if (io.dx[0] != nullptr) std::fill_n(io.dx[0], io.step.count * op.in.size(), T(0));
    if (op.bias && dw) {
      double* const d_bias = dw + op.kernel_size();  // (filters)
      const std::size_t pixels = io.step.count * op.out().size() / filters;
      for (std::size_t i = 0; i < pixels; ++i)
        for (std::size_t f = 0; f < filters; ++f)
          d_bias[f] += static_cast<double>(io.dy[i * filters + f]);
    }
    detail::for_each_tap(
        op.rows(), op.columns(), io.step.count,
        [&](std::size_t in, std::size_t tap, std::size_t out) {
          const T* const x = io.x[0] + in * channels;                  // (channels)
          const T* const dy = io.dy + out * filters;                   // (channels, each)
          const T* const kernel = io.w + tap * filters;                // (channels, each)
          double* const d_kernel = dw ? dw + tap * filters : nullptr;  // (channels, each)
          for (std::size_t k = 0; k < channels; ++k) {
            T sum = 0;
            for (std::size_t f = k * each; f < (k + 1) * each; ++f) {
              if (d_kernel) d_kernel[f] += static_cast<double>(x[k]) * static_cast<double>(dy[f]);
              sum += kernel[f] * dy[f];
            }
            if (io.dx[0] != nullptr) io.dx[0][in * channels + k] += sum;
          }
        });
    sums.end(io.dw);
  }
};

static_assert(HasKernel<DepthwiseConv2DOp, Reference<double>>);

}  // namespace lockstep
