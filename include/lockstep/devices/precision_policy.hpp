/// \file
/// Precision policies of devices: what the values between layers are stored in. Invariant: weights,
/// their gradients, the optimizer's state, statistics, the loss and all sums are in IEEE single
/// precision.
#pragma once

#include <string_view>

#include "lockstep/concepts/device.hpp"
#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/float16.hpp"

namespace lockstep {

/// Storage and arithmetic in IEEE single precision.
struct Float32 {
  using real = float;
  using activation = float;
  static constexpr std::string_view name = "float32";
};

/// As Float32, but the factors of products may be rounded to TF32, 10 bits of fraction, as GPUs do
/// on tensor cores. Sums are in single precision.
struct Tf32 {
  using real = float;
  using activation = float;
  static constexpr std::string_view name = "tf32";
};

/// Values between layers, and their gradients, are stored in bfloat16, and multiplied in it. Keras'
/// policy "mixed_bfloat16".
struct MixedBFloat16 {
  using real = float;
  using activation = bfloat16;
  static constexpr std::string_view name = "mixed_bfloat16";
};

/// Values between layers, and their gradients, are stored in IEEE half precision, and multiplied in
/// it. Its range is small, so the loss is scaled. Keras' policy "mixed_float16".
struct MixedFloat16 {
  using real = float;
  using activation = float16;
  static constexpr std::string_view name = "mixed_float16";
  static constexpr LossScaling loss_scaling{};
};

namespace detail {
/// Of a policy that has none: none.
template <class Precision>
inline constexpr LossScaling loss_scaling_of{0, 0};
template <class Precision>
  requires requires { Precision::loss_scaling; }
inline constexpr LossScaling loss_scaling_of<Precision> = Precision::loss_scaling;
}  // namespace detail

}  // namespace lockstep
