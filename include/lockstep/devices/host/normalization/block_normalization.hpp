/// \file
/// Normalization of the blocks of an example (layers/normalization/normalized_blocks.hpp) on every
/// device over host memory: the kernels of LayerNormalization, RMSNormalization and
/// GroupNormalization. Invariant: all sums are in double, which costs little for the short rows and
/// keeps x - mean exact where it cancels.
#pragma once

#include <cmath>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/double_sums.hpp"
#include "lockstep/layers/normalization/normalized_blocks.hpp"

namespace lockstep::detail {

/// y = gamma (x - mean) / sqrt(mean((x - mean)^2) + epsilon) + beta for each block. `Centered` =
/// false: the mean that is subtracted is 0.
template <class Op, class D, bool Centered = true>
struct BlockNormalization : KernelTraits {
  using T = typename D::real;
  using A = ActivationOf<D>;
  static constexpr bool keeps_x = true, skips_dw = true;
  using Prepared = DoubleSums<T>;

  static Prepared prepare(const Op& op, typename D::Context&, std::size_t) {
    return Prepared(op.weights());
  }
  /// Mean and 1 / sqrt(variance + epsilon) of each block, interleaved.
  static constexpr std::size_t saved(const Op& op) {
    return 2 * (op.in.size() / op.blocks().size()) * sizeof(double);
  }

  static void forward(const Op& op, const Io<D>& io, Prepared&) {
    const NormalizedBlocks blocks = op.blocks();
    const auto n = static_cast<double>(blocks.size());
    double* const saved = reinterpret_cast<double*>(io.saved);
    const std::size_t count = io.step.count * op.in.size() / blocks.size();
    for (std::size_t b = 0; b < count; ++b) {
      const A* const x = io.x[0] + blocks.begin(b);
      A* const y = io.y + blocks.begin(b);
      const std::size_t first = blocks.first_channel(b);
      const T* const gamma = op.scale ? io.w + first : nullptr;  // (channels)
      const T* const beta =
          op.center ? io.w + (op.scale ? op.channels() : 0) + first : nullptr;  // (channels)
      double mean = 0, variance = 0;
      if constexpr (Centered) {
        for_elements(blocks,
                     [&](std::size_t i, std::size_t) { mean += static_cast<double>(x[i]); });
        mean /= n;
      }
      for_elements(blocks, [&](std::size_t i, std::size_t) {
        const double d = static_cast<double>(x[i]) - mean;
        variance += d * d;
      });
      const double scale = 1 / std::sqrt(variance / n + static_cast<double>(op.epsilon));
      saved[2 * b] = mean;
      saved[2 * b + 1] = scale;
      for_elements(blocks, [&](std::size_t i, std::size_t k) {
        const double normal = (static_cast<double>(x[i]) - mean) * scale;
        y[i] = static_cast<A>(normal * (gamma ? static_cast<double>(gamma[k]) : 1) +
                              (beta ? static_cast<double>(beta[k]) : 0));
      });
    }
  }

  /// dx = scale (g - mean(g) - x_hat mean(g x_hat)), where g = dy gamma and x_hat = (x - mean)
  /// scale; without mean(g) if the block is not centered.
  static void backward(const Op& op, const Io<D>& io, Prepared& sums) {
    const NormalizedBlocks blocks = op.blocks();
    const auto n = static_cast<double>(blocks.size());
    double* const dw = sums.begin(io.dw);
    const double* const saved = reinterpret_cast<const double*>(io.saved);
    const std::size_t count = io.step.count * op.in.size() / blocks.size();
    for (std::size_t b = 0; b < count; ++b) {
      const A* const x = io.x[0] + blocks.begin(b);
      const A* const dy = io.dy + blocks.begin(b);
      const std::size_t first = blocks.first_channel(b);
      const T* const gamma = op.scale ? io.w + first : nullptr;                  // (channels)
      double* const d_gamma = op.scale && dw != nullptr ? dw + first : nullptr;  // (channels)
      double* const d_beta = op.center && dw != nullptr
                                 ? dw + (op.scale ? op.channels() : 0) + first
                                 : nullptr;  // (channels)
      const double mean = saved[2 * b], scale = saved[2 * b + 1];
      double sum = 0, sum_of_products = 0;
      for_elements(blocks, [&](std::size_t i, std::size_t k) {
        const double normal = (static_cast<double>(x[i]) - mean) * scale,
                     g = static_cast<double>(dy[i]) * (gamma ? static_cast<double>(gamma[k]) : 1);
        if (d_gamma) d_gamma[k] += static_cast<double>(dy[i]) * normal;
        if (d_beta) d_beta[k] += static_cast<double>(dy[i]);
        if constexpr (Centered) sum += g;
        sum_of_products += g * normal;
      });
      if (io.dx[0] == nullptr) continue;
      sum /= n;
      sum_of_products /= n;
      A* const dx = io.dx[0] + blocks.begin(b);
      for_elements(blocks, [&](std::size_t i, std::size_t k) {
        const double normal = (static_cast<double>(x[i]) - mean) * scale,
                     g = static_cast<double>(dy[i]) * (gamma ? static_cast<double>(gamma[k]) : 1);
        dx[i] = static_cast<A>(scale * (g - sum - normal * sum_of_products));
      });
    }
    sums.end(io.dw);
  }

 private:
  /// Calls each(place relative to the block's first element, channel in the block).
  template <class Each>
  static void for_elements(const NormalizedBlocks& blocks, const Each& each) {
    for (std::size_t row = 0; row < blocks.rows; ++row)
      for (std::size_t k = 0; k < blocks.channels; ++k) each(row * blocks.stride() + k, k);
  }
};

}  // namespace lockstep::detail
