/// \file
/// LayerNormalization on every device over host memory. Invariant: all sums are in double, which
/// costs little for the short rows and keeps x - mean exact where it cancels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/double_sums.hpp"
#include "lockstep/layers/normalization/layer_normalization.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<LayerNormalizationOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  using A = ActivationOf<D>;
  static constexpr bool keeps_x = true, skips_dw = true;
  using Prepared = detail::DoubleSums<T>;

  static Prepared prepare(const LayerNormalizationOp& op, typename D::Context&, std::size_t) {
    return Prepared(((op.scale ? 1 : 0) + (op.center ? 1 : 0)) * op.channels());
  }
  /// Mean and 1 / sqrt(variance + epsilon) of each row, interleaved.
  static constexpr std::size_t saved(const LayerNormalizationOp& op) {
    return 2 * op.rows() * sizeof(double);
  }

  static void forward(const LayerNormalizationOp& op, const Io<D>& io, Prepared&) {
    const std::size_t channels = op.channels(), rows = io.step.count * op.rows();
    const T* const gamma = op.scale ? io.w : nullptr;                              // (channels)
    const T* const beta = op.center ? io.w + (op.scale ? channels : 0) : nullptr;  // (channels)
    double* const saved = reinterpret_cast<double*>(io.saved);
    for (std::size_t row = 0; row < rows; ++row) {
      const A* const x = io.x[0] + row * channels;  // (channels)
      A* const y = io.y + row * channels;           // (channels)
      double mean = 0, variance = 0;
      for (std::size_t k = 0; k < channels; ++k) mean += static_cast<double>(x[k]);
      mean /= static_cast<double>(channels);
      for (std::size_t k = 0; k < channels; ++k) {
        const double d = static_cast<double>(x[k]) - mean;
        variance += d * d;
      }
      variance /= static_cast<double>(channels);
      const double scale = 1 / std::sqrt(variance + static_cast<double>(op.epsilon));
      saved[2 * row] = mean;
      saved[2 * row + 1] = scale;
      for (std::size_t k = 0; k < channels; ++k) {
        const double normal = (static_cast<double>(x[k]) - mean) * scale;
        y[k] = static_cast<A>(normal * (gamma ? static_cast<double>(gamma[k]) : 1) +
                              (beta ? static_cast<double>(beta[k]) : 0));
      }
    }
  }

  /// dx = scale (g - mean(g) - x_hat mean(g x_hat)), where g = dy gamma and x_hat = (x - mean)
  /// scale.
  static void backward(const LayerNormalizationOp& op, const Io<D>& io, Prepared& sums) {
    const std::size_t channels = op.channels(), rows = io.step.count * op.rows();
    const T* const gamma = op.scale ? io.w : nullptr;  // (channels)
    double* const dw = sums.begin(io.dw);
    double* const d_gamma = op.scale ? dw : nullptr;  // (channels)
    double* const d_beta =
        op.center && dw ? dw + (op.scale ? channels : 0) : nullptr;  // (channels)
    const double* const saved = reinterpret_cast<const double*>(io.saved);
    for (std::size_t row = 0; row < rows; ++row) {
      const A* const x = io.x[0] + row * channels;  // (channels)
      const A* const dy = io.dy + row * channels;   // (channels)
      const double mean = saved[2 * row], scale = saved[2 * row + 1];
      double sum = 0, sum_of_products = 0;
      for (std::size_t k = 0; k < channels; ++k) {
        const double normal = (static_cast<double>(x[k]) - mean) * scale,
                     g = static_cast<double>(dy[k]) * (gamma ? static_cast<double>(gamma[k]) : 1);
        if (d_gamma) d_gamma[k] += static_cast<double>(dy[k]) * normal;
        if (d_beta) d_beta[k] += static_cast<double>(dy[k]);
        sum += g;
        sum_of_products += g * normal;
      }
      if (io.dx[0] == nullptr) continue;
      sum /= static_cast<double>(channels);
      sum_of_products /= static_cast<double>(channels);
      A* const dx = io.dx[0] + row * channels;  // (channels)
      for (std::size_t k = 0; k < channels; ++k) {
        const double normal = (static_cast<double>(x[k]) - mean) * scale,
                     g = static_cast<double>(dy[k]) * (gamma ? static_cast<double>(gamma[k]) : 1);
        dx[k] = static_cast<A>(scale * (g - sum - normal * sum_of_products));
      }
    }
    sums.end(io.dw);
  }
};

}  // namespace lockstep
