/// \file
/// Conv2DTranspose on the reference device: Conv2D with input and output exchanged. The taps are
/// those of the convolution from y back to x, so `large` is a pixel of y and `small` one of x.
#pragma once

#include <algorithm>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/double_sums.hpp"
#include "lockstep/devices/reference/convolution2d.hpp"
#include "lockstep/devices/reference/device.hpp"
#include "lockstep/layers/convolution/conv2d_transpose.hpp"

namespace lockstep {

template <class T>
struct Kernel<Conv2DTransposeOp, Reference<T>> : KernelTraits {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = true, skips_dw = true;
  using Prepared = detail::DoubleSums<T>;

  static Prepared prepare(const Conv2DTransposeOp& op, typename Reference<T>::Context&,
                          std::size_t) {
    return Prepared(op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.filters) : 0));
  }

  static void forward(const Conv2DTransposeOp& op, const Io<Reference<T>>& io, Prepared&) {
    const auto channels = static_cast<std::size_t>(op.in[2]),
               filters = static_cast<std::size_t>(op.filters);
    const T* const bias = io.w + op.kernel_size();  // (filters)
    const std::size_t pixels = io.step.count * op.out().size() / filters;
    for (std::size_t i = 0; i < pixels; ++i)
      for (std::size_t f = 0; f < filters; ++f) io.y[i * filters + f] = op.bias ? bias[f] : T(0);
    const Conv2DOp back = op.convolution();
    detail::for_each_tap(back.rows(), back.columns(), io.step.count,
                         [&](std::size_t large, std::size_t tap, std::size_t small) {
                           const T* const x = io.x[0] + small * channels;            // (channels)
                           const T* const kernel = io.w + tap * filters * channels;  // (f, k)
                           T* const y = io.y + large * filters;                      // (filters)
                           for (std::size_t f = 0; f < filters; ++f)
                             for (std::size_t k = 0; k < channels; ++k)
                               y[f] += x[k] * kernel[f * channels + k];
                         });
  }

  static void backward(const Conv2DTransposeOp& op, const Io<Reference<T>>& io, Prepared& sums) {
    const auto channels = static_cast<std::size_t>(op.in[2]),
               filters = static_cast<std::size_t>(op.filters);
    double* const dw = sums.begin(io.dw);
    if (io.dx[0] != nullptr) std::fill_n(io.dx[0], io.step.count * op.in.size(), T(0));
    if (op.bias && dw) {
      double* const d_bias = dw + op.kernel_size();  // (filters)
      const std::size_t pixels = io.step.count * op.out().size() / filters;
      for (std::size_t i = 0; i < pixels; ++i)
        for (std::size_t f = 0; f < filters; ++f)
          d_bias[f] += static_cast<double>(io.dy[i * filters + f]);
    }
    const Conv2DOp back = op.convolution();
    detail::for_each_tap(back.rows(), back.columns(), io.step.count,
                         [&](std::size_t large, std::size_t tap, std::size_t small) {
                           const T* const x = io.x[0] + small * channels;            // (channels)
                           const T* const dy = io.dy + large * filters;              // (filters)
                           const T* const kernel = io.w + tap * filters * channels;  // (f, k)
                           double* const d_kernel =
                               dw ? dw + tap * filters * channels : nullptr;  // (f, k)
                           for (std::size_t f = 0; f < filters; ++f)
                             for (std::size_t k = 0; k < channels; ++k) {
                               if (d_kernel)
                                 d_kernel[f * channels + k] +=
                                     static_cast<double>(x[k]) * static_cast<double>(dy[f]);
                               if (io.dx[0] != nullptr)
                                 io.dx[0][small * channels + k] += kernel[f * channels + k] * dy[f];
                             }
                         });
    sums.end(io.dw);
  }
};

static_assert(HasKernel<Conv2DTransposeOp, Reference<double>>);

}  // namespace lockstep
