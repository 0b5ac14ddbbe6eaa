/// \file
/// Softmax and log-softmax on the reference device. Invariant: the largest element of a row is
/// subtracted first, so that no exponential overflows.
///
///     softmax      y = e^(x - max) / sum e^(x - max)       dx = y (dy - sum dy y)
///     log-softmax  y = x - max - log sum e^(x - max)       dx = dy - e^y sum dy
#pragma once

#include <algorithm>
#include <cmath>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/reference/device.hpp"
#include "lockstep/layers/activations/softmax.hpp"

namespace lockstep {

template <class T>
struct Kernel<SoftmaxOp, Reference<T>> : KernelTraits {
  using library_kernel = Kernel;
  static constexpr bool keeps_y = true, in_place = true;

  static void forward(const SoftmaxOp& op, const Io<Reference<T>>& io) {
    const auto classes = static_cast<std::size_t>(op.in.channels());
    const std::size_t size = io.step.count * op.in.size();
    for (std::size_t row = 0; row < size; row += classes) {
      const T* const x = io.x[0] + row;  // (classes)
      T* const y = io.y + row;           // (classes)
      const T largest = *std::max_element(x, x + classes);
      double sum = 0;
      for (std::size_t k = 0; k < classes; ++k)
        sum += static_cast<double>(y[k] = std::exp(x[k] - largest));
      for (std::size_t k = 0; k < classes; ++k)
        y[k] = static_cast<T>(static_cast<double>(y[k]) / sum);
    }
  }

  static void backward(const SoftmaxOp& op, const Io<Reference<T>>& io) {
    if (io.dx[0] == nullptr) return;
    const auto classes = static_cast<std::size_t>(op.in.channels());
    const std::size_t size = io.step.count * op.in.size();
    for (std::size_t row = 0; row < size; row += classes) {
      const T* const y = io.y + row;    // (classes)
      const T* const dy = io.dy + row;  // (classes)
      T* const dx = io.dx[0] + row;     // (classes)
      double sum = 0;
      for (std::size_t k = 0; k < classes; ++k)
        sum += static_cast<double>(dy[k]) * static_cast<double>(y[k]);
      for (std::size_t k = 0; k < classes; ++k) dx[k] = y[k] * (dy[k] - static_cast<T>(sum));
    }
  }
};

template <class T>
struct Kernel<LogSoftmaxOp, Reference<T>> : KernelTraits {
  using library_kernel = Kernel;
  static constexpr bool keeps_y = true, in_place = true;

  static void forward(const LogSoftmaxOp& op, const Io<Reference<T>>& io) {
    const auto classes = static_cast<std::size_t>(op.in.channels());
    const std::size_t size = io.step.count * op.in.size();
    for (std::size_t row = 0; row < size; row += classes) {
      const T* const x = io.x[0] + row;  // (classes)
      T* const y = io.y + row;           // (classes)
      const T largest = *std::max_element(x, x + classes);
      double sum = 0;
      for (std::size_t k = 0; k < classes; ++k)
        sum += static_cast<double>(std::exp(x[k] - largest));
      const T log_of_sum = static_cast<T>(std::log(sum));
      for (std::size_t k = 0; k < classes; ++k) y[k] = x[k] - largest - log_of_sum;
    }
  }

  static void backward(const LogSoftmaxOp& op, const Io<Reference<T>>& io) {
    if (io.dx[0] == nullptr) return;
    const auto classes = static_cast<std::size_t>(op.in.channels());
    const std::size_t size = io.step.count * op.in.size();
    for (std::size_t row = 0; row < size; row += classes) {
      const T* const y = io.y + row;    // (classes)
      const T* const dy = io.dy + row;  // (classes)
      T* const dx = io.dx[0] + row;     // (classes)
      double sum = 0;
      for (std::size_t k = 0; k < classes; ++k) sum += static_cast<double>(dy[k]);
      for (std::size_t k = 0; k < classes; ++k)
        dx[k] = dy[k] - std::exp(y[k]) * static_cast<T>(sum);
    }
  }
};

static_assert(HasKernel<SoftmaxOp, Reference<double>> &&
              HasKernel<LogSoftmaxOp, Reference<double>>);

}  // namespace lockstep
