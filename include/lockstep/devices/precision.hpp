/// \file
/// Precision policies of devices: what the values between layers are stored in. Invariant: weights,
/// their gradients, the optimizer's state, statistics, the loss and all sums are in IEEE single
/// precision.
#pragma once

#include <string_view>

#include "lockstep/core/bfloat16.hpp"

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

}  // namespace lockstep
