/// \file
/// Dynamic loss scaling, for devices whose element type underflows (float16). Invariants: the scale
/// is a power of two, so that scaling is exact for normal numbers; its next value depends only on
/// the summed gradients, which are bit-identical in all replicas, so the replicas stay in step
/// without an exchange; devices without loss scaling pay nothing.
///
///     backward of scale * loss --> all-reduce --> gradients / scale --> any NaN or infinity?
///         yes: skip the update, halve the scale
///         no:  update; after growth_steps such steps in a row, double the scale
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel_calls.hpp"
#include "lockstep/concepts/optimizer.hpp"

namespace lockstep::detail {

/// The state of a loss scale, for checkpoints.
struct LossScaleState {
  double scale = 1;
  std::uint64_t finite_steps = 0, skipped = 0;
};

/// For devices without loss scaling: a constant scale of 1.
template <class D>
class LossScale {
 public:
  static constexpr std::size_t sums = 0;
  static constexpr double value() { return 1; }
  static constexpr std::uint64_t skipped() { return 0; }
  static constexpr LossScaleState state() { return {}; }
  void restore(const LossScaleState&) {}
};

/// Keras' LossScaleOptimizer (keras/src/optimizers/loss_scale_optimizer.py). One difference: the
/// scale is clamped so that both the scale and its inverse are normal floats.
template <ScalesLoss D>
class LossScale<D> {
 public:
  /// Elements that `unscale` adds to, at the end of the step's sums.
  static constexpr std::size_t sums = 1;
  static constexpr double smallest = 0x1p-126, largest = 0x1p126;

  /// Factor applied to the gradient that the loss writes.
  double value() const { return scale_; }
  /// Steps so far whose update was skipped because gradients overflowed.
  std::uint64_t skipped() const { return skipped_; }

  LossScaleState state() const { return {scale_, finite_steps_, skipped_}; }
  void restore(const LossScaleState& state) {
    scale_ = state.scale;
    finite_steps_ = state.finite_steps;
    skipped_ = state.skipped;
  }

  /// Divides the summed gradients by the scale; adds the number of non-finite ones to `nonfinite`,
  /// in device memory.
  void unscale(typename D::Context& context, typename D::real* g, std::size_t size,
               double* nonfinite) const {
    run_kernel<D>(Unscaling{1 / scale_}, UnscalingIo<D>{context, size, g, nonfinite});
  }

  /// Adjusts the scale after a step with `nonfinite` non-finite gradients. Called once per step.
  /// \returns whether the update is to be made.
  bool accept_step(double nonfinite) {
    const bool finite = nonfinite == 0;
    if (!finite) {
      ++skipped_;
      finite_steps_ = 0;
      if (scale_ > smallest) scale_ /= 2;
    } else if (++finite_steps_ == D::loss_scaling.growth_steps) {
      finite_steps_ = 0;
      if (scale_ < largest) scale_ *= 2;
    }
    return finite;
  }

 private:
  double scale_ = D::loss_scaling.start;
  std::uint64_t finite_steps_ = 0, skipped_ = 0;
};

}  // namespace lockstep::detail
