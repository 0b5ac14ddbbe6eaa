/// \file
/// Types of training with a scaled loss, for any start and growth.
#pragma once

#include <string_view>

#include "lockstep/training/step/loss_scale.hpp"

namespace testing {

/// Float32 activations with MixedFloat16's scaling: scale 2^Exponent, doubled after Growth steps.
template <int Exponent, int Growth, class A = float>
struct Scaled {
  using real = float;
  using activation = A;
  static constexpr std::string_view name = "scaled";
  static constexpr lockstep::LossScaling loss_scaling{
      Exponent < 0 ? 1.0 / static_cast<double>(1ull << -Exponent)
                   : static_cast<double>(1ull << Exponent / 2) *
                         static_cast<double>(1ull << (Exponent - Exponent / 2)),
      Growth};
};

}  // namespace testing
