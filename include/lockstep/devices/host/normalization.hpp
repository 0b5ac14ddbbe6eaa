/// \file
/// Normalization on every device over host memory: y = (x - mean) / max(sqrt(variance), 1e-7), with
/// mean and variance of each channel in the layer's state.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/layers/preprocessing/normalization.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<NormalizationOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  using A = ActivationOf<D>;

  static void forward(const NormalizationOp& op, const Io<D>& io) {
    for_each(op, io.step.count, [&](std::size_t i, std::size_t k, std::size_t channels) {
      const T x = io.batch != nullptr ? io.batch[i] : T(io.x[0][i]);
      io.y[i] = A((x - io.state[k]) / deviation(io.state[channels + k]));
    });
  }
  static void backward(const NormalizationOp& op, const Io<D>& io) {
    if (io.dx[0] == nullptr) return;
    for_each(op, io.step.count, [&](std::size_t i, std::size_t k, std::size_t channels) {
      io.dx[0][i] = A(T(io.dy[i]) / deviation(io.state[channels + k]));
    });
  }

 private:
  static T deviation(T variance) { return std::max(std::sqrt(variance), T(1e-7)); }

  template <class F>
  static void for_each(const NormalizationOp& op, std::size_t count, const F& f) {
    const auto channels = static_cast<std::size_t>(op.in.channels());
    for (std::size_t row = 0; row < count * op.in.size(); row += channels)
      for (std::size_t k = 0; k < channels; ++k) f(row + k, k, channels);
  }
};

}  // namespace lockstep
