/// \file
/// GlobalAveragePooling2D on the reference device: y[k] = mean over pixels of x[pixel, k].
#pragma once

#include <algorithm>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/reference/device.hpp"
#include "lockstep/layers/pooling/global_average_pooling2d.hpp"

namespace lockstep {

template <class T>
struct Kernel<GlobalAveragePooling2DOp, Reference<T>> : KernelTraits {
  using library_kernel = Kernel;
  static void forward(const GlobalAveragePooling2DOp& op, const Io<Reference<T>>& io) {
    const std::size_t channels = op.out().size(), pixels = op.in.size() / channels;
    for (std::size_t n = 0; n < io.step.count; ++n) {
      const T* const x = io.x[0] + n * pixels * channels;  // (pixels, channels)
      T* const y = io.y + n * channels;                    // (channels)
      for (std::size_t k = 0; k < channels; ++k) {
        double sum = 0;
        for (std::size_t i = 0; i < pixels; ++i) sum += static_cast<double>(x[i * channels + k]);
        y[k] = static_cast<T>(sum / static_cast<double>(pixels));
      }
    }
  }

  static void backward(const GlobalAveragePooling2DOp& op, const Io<Reference<T>>& io) {
    if (io.dx[0] == nullptr) return;
    const std::size_t channels = op.out().size(), pixels = op.in.size() / channels;
    for (std::size_t n = 0; n < io.step.count; ++n) {
      const T* const dy = io.dy + n * channels;        // (channels)
      T* const dx = io.dx[0] + n * pixels * channels;  // (pixels, channels)
      for (std::size_t i = 0; i < pixels; ++i)
        for (std::size_t k = 0; k < channels; ++k)
          dx[i * channels + k] = dy[k] / static_cast<T>(pixels);
    }
  }
};

static_assert(HasKernel<GlobalAveragePooling2DOp, Reference<double>>);

}  // namespace lockstep
