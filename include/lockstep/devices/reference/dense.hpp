/// \file
/// Dense on the reference device: y = x w + b, dw = x' dy, db = sum of dy over rows, dx = dy w'.
#pragma once

#include <algorithm>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/double_sums.hpp"
#include "lockstep/devices/reference/device.hpp"
#include "lockstep/layers/dense.hpp"

namespace lockstep {

template <class T>
struct Kernel<DenseOp, Reference<T>> : KernelTraits {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = true, skips_dw = true;
  using Prepared = detail::DoubleSums<T>;

  static Prepared prepare(const DenseOp& op, typename Reference<T>::Context&, std::size_t) {
    return Prepared(op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.units) : 0));
  }

  static void forward(const DenseOp& op, const Io<Reference<T>>& io, Prepared&) {
    const auto inputs = static_cast<std::size_t>(op.inputs),
               units = static_cast<std::size_t>(op.units), rows = io.step.count * op.rows();
    const T* const kernel = io.w;                   // (inputs, units)
    const T* const bias = io.w + op.kernel_size();  // (units)
    for (std::size_t n = 0; n < rows; ++n) {
      const T* const x = io.x[0] + n * inputs;  // (inputs)
      T* const y = io.y + n * units;            // (units)
      for (std::size_t u = 0; u < units; ++u) y[u] = op.bias ? bias[u] : T(0);
      for (std::size_t i = 0; i < inputs; ++i)
        for (std::size_t u = 0; u < units; ++u) y[u] += x[i] * kernel[i * units + u];
    }
  }

  static void backward(const DenseOp& op, const Io<Reference<T>>& io, Prepared& sums) {
    const auto inputs = static_cast<std::size_t>(op.inputs),
               units = static_cast<std::size_t>(op.units), rows = io.step.count * op.rows();
    const T* const kernel = io.w;                // (inputs, units)
    double* const d_kernel = sums.begin(io.dw);  // (inputs, units), or null
    for (std::size_t n = 0; n < rows; ++n) {
      const T* const x = io.x[0] + n * inputs;  // (inputs)
      const T* const dy = io.dy + n * units;    // (units)
      if (op.bias && d_kernel)
        for (std::size_t u = 0; u < units; ++u)
          d_kernel[op.kernel_size() + u] += static_cast<double>(dy[u]);
      for (std::size_t i = 0; i < inputs; ++i) {
        T sum = 0;
        for (std::size_t u = 0; u < units; ++u) {
          if (d_kernel)
            d_kernel[i * units + u] += static_cast<double>(x[i]) * static_cast<double>(dy[u]);
          sum += kernel[i * units + u] * dy[u];
        }
        if (io.dx[0] != nullptr) io.dx[0][n * inputs + i] = sum;
      }
    }
    sums.end(io.dw);
  }
};

static_assert(HasKernel<DenseOp, Reference<double>>);

}  // namespace lockstep
