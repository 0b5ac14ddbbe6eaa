/// \file
/// The scale of the loss' gradient, on a device that asks for one. Invariants: it is a power of
/// two, so that scaling rounds nothing that the device's type can hold; what it does next follows
/// from the summed gradients, which are the same bits in all replicas, so all do the same; a device
/// that asks for none pays nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel_calls.hpp"
#include "lockstep/concepts/optimizer.hpp"

namespace lockstep::detail {

/// Of a device that asks for none.
template <class D>
class LossScale {
 public:
  static constexpr std::size_t sums = 0;
  static constexpr double value() { return 1; }
  static constexpr std::uint64_t skipped() { return 0; }
};

/// Keras' LossScaleOptimizer (keras/src/optimizers/loss_scale_optimizer.py), but that the scale
/// stays where a float holds both it and its inverse.
template <ScalesLoss D>
class LossScale<D> {
 public:
  /// Numbers that `unscale` adds to.
  static constexpr std::size_t sums = 1;
  static constexpr double smallest = 0x1p-126, largest = 0x1p126;

  /// A factor of the gradient that the loss writes.
  double value() const { return scale_; }
  /// Steps so far that were not made.
  std::uint64_t skipped() const { return skipped_; }

  /// The gradients of all replicas become those of the loss; adds to `wrong` how many are not
  /// finite.
  void unscale(typename D::Context& context, typename D::real* g, std::size_t size,
               double* wrong) const {
    run_kernel<D>(Unscaling{1 / scale_}, UnscalingIo<D>{context, size, g, wrong});
  }

  /// After each step: whether its update is made, now that `wrong` of its gradients are not finite.
  bool makes_step(double wrong) {
    const bool finite = wrong == 0;
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
