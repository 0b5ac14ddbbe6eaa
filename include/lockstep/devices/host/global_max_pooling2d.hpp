/// \file
/// GlobalMaxPooling2D on every device over host memory. Equal maxima share the gradient evenly, as
/// in Keras; NaN propagates in both passes.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/layers/pooling/global_max_pooling2d.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<GlobalMaxPooling2DOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  using A = ActivationOf<D>;
  static constexpr bool keeps_x = true, keeps_y = true;

  static void forward(const GlobalMaxPooling2DOp& op, const Io<D>& io) {
    const std::size_t channels = op.out().size(), pixels = op.in.size() / channels;
    for (std::size_t n = 0; n < io.step.count; ++n) {
      const A* const x = io.x[0] + n * pixels * channels;  // (pixels, channels)
      A* const y = io.y + n * channels;                    // (channels)
      std::copy_n(x, channels, y);
      for (std::size_t i = 1; i < pixels; ++i)
        for (std::size_t k = 0; k < channels; ++k) {
          const A v = x[i * channels + k];
          if (v > y[k] || detail::is_nan(T(v))) y[k] = v;  // propagates NaN
        }
    }
  }

  static void backward(const GlobalMaxPooling2DOp& op, const Io<D>& io) {
    if (io.dx[0] == nullptr) return;
    const std::size_t channels = op.out().size(), pixels = op.in.size() / channels;
    for (std::size_t n = 0; n < io.step.count; ++n) {
      const A* const x = io.x[0] + n * pixels * channels;  // (pixels, channels)
      A* const dx = io.dx[0] + n * pixels * channels;      // (pixels, channels)
      for (std::size_t k = 0; k < channels; ++k) {
        const T y = T(io.y[n * channels + k]), dy = T(io.dy[n * channels + k]);
        std::size_t equal = 0;
        for (std::size_t i = 0; i < pixels; ++i) equal += T(x[i * channels + k]) == y;
        // No element equals a NaN maximum; then all of dx becomes NaN.
        const A share = A(equal > 0 ? dy / static_cast<T>(equal) : y),
                other = A(equal > 0 ? T(0) : y);
        for (std::size_t i = 0; i < pixels; ++i)
          dx[i * channels + k] = T(x[i * channels + k]) == y ? share : other;
      }
    }
  }
};

}  // namespace lockstep
