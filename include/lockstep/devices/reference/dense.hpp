/// \file
/// Dense on the reference device.
#pragma once

#include <algorithm>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/reference/device.hpp"
#include "lockstep/layers/dense.hpp"

namespace lockstep {

template <class T>
struct Kernel<DenseOp, Reference<T>> : KernelTraits {
  static constexpr bool keeps_x = true;

  [[gnu::noinline]] static void forward(const DenseOp& op, const Io<Reference<T>>& io) {
    const auto inputs = static_cast<std::size_t>(op.inputs),
               units = static_cast<std::size_t>(op.units), rows = io.count * op.rows();
    const T* const kernel = io.w;                   // (inputs, units)
    const T* const bias = io.w + op.kernel_size();  // (units)
    for (std::size_t n = 0; n < rows; ++n) {
      const T* const x = io.x + n * inputs;  // (inputs)
      T* const y = io.y + n * units;         // (units)
      for (std::size_t u = 0; u < units; ++u) y[u] = op.bias ? bias[u] : T(0);
      for (std::size_t i = 0; i < inputs; ++i)
        for (std::size_t u = 0; u < units; ++u) y[u] += x[i] * kernel[i * units + u];
    }
  }

  [[gnu::noinline]] static void backward(const DenseOp& op, const Io<Reference<T>>& io) {
    const auto inputs = static_cast<std::size_t>(op.inputs),
               units = static_cast<std::size_t>(op.units), rows = io.count * op.rows();
    const T* const kernel = io.w;                // (inputs, units)
    T* const d_kernel = io.dw;                   // (inputs, units)
    T* const d_bias = io.dw + op.kernel_size();  // (units)
    std::fill_n(d_kernel, op.kernel_size(), T(0));
    if (op.bias) std::fill_n(d_bias, units, T(0));
    for (std::size_t n = 0; n < rows; ++n) {
      const T* const x = io.x + n * inputs;   // (inputs)
      const T* const dy = io.dy + n * units;  // (units)
      if (op.bias)
        for (std::size_t u = 0; u < units; ++u) d_bias[u] += dy[u];
      for (std::size_t i = 0; i < inputs; ++i) {
        T sum = 0;
        for (std::size_t u = 0; u < units; ++u) {
          d_kernel[i * units + u] += x[i] * dy[u];
          sum += kernel[i * units + u] * dy[u];
        }
        if (io.dx != nullptr) io.dx[n * inputs + i] = sum;
      }
    }
  }
};

static_assert(HasKernel<DenseOp, Reference<double>>);

}  // namespace lockstep
