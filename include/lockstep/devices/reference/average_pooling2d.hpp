/// \file
/// AveragePooling2D on the reference device. Invariant: padding is excluded from both the sum and
/// the divisor.
#pragma once

#include <algorithm>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/reference/device.hpp"
#include "lockstep/devices/reference/pooling2d.hpp"
#include "lockstep/layers/pooling/average_pooling2d.hpp"

namespace lockstep {

template <class T>
struct Kernel<AveragePooling2DOp, Reference<T>> : KernelTraits {
  using library_kernel = Kernel;
  static void forward(const AveragePooling2DOp& op, const Io<Reference<T>>& io) {
    const T* const x = io.x[0];  // (count, height, width, channels)
    T* const y = io.y;           // (count, height', width', channels)
    detail::for_each_window(op.window, io.step.count, [&](std::size_t out, const auto& taps) {
      double sum = 0;
      int inside = 0;
      taps([&](int, std::size_t in) { sum += static_cast<double>(x[in]), ++inside; });
      y[out] = static_cast<T>(sum / inside);
    });
  }

  static void backward(const AveragePooling2DOp& op, const Io<Reference<T>>& io) {
    if (io.dx[0] == nullptr) return;
    const T* const dy = io.dy;  // (count, height', width', channels)
    T* const dx = io.dx[0];     // (count, height, width, channels)
    std::fill_n(dx, io.step.count * op.window.in.size(), T(0));
    detail::for_each_window(op.window, io.step.count, [&](std::size_t out, const auto& taps) {
      int inside = 0;
      taps([&](int, std::size_t) { ++inside; });
      const T share = dy[out] / static_cast<T>(inside);
      taps([&](int, std::size_t in) { dx[in] += share; });
    });
  }
};

static_assert(HasKernel<AveragePooling2DOp, Reference<double>>);

}  // namespace lockstep
