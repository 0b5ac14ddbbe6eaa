/// \file
/// Precision policies of devices: the type in which activations are stored.
///
///                     activations, dx   weights, dw, optimizer   products       loss scaling
///     Float32         float             float                    float          no
///     Tf32            float             float                    TF32 allowed   no
///     MixedBFloat16   bfloat16          float                    bfloat16       no
///     MixedFloat16    float16           float                    float16        yes
///
/// Invariant: weights, their gradients, the optimizer's state, running statistics, the loss and all
/// sums are in IEEE single precision.
#pragma once

#include <string_view>

#include "lockstep/concepts/device.hpp"
#include "lockstep/core/numbers/bfloat16.hpp"
#include "lockstep/core/numbers/float16.hpp"

namespace lockstep {

/// Storage and arithmetic in IEEE single precision.
struct Float32 {
  using real = float;
  using activation = float;
  static constexpr std::string_view name = "float32";
};

/// As Float32, but the factors of matrix products may be rounded to TF32 (10 fraction bits), the
/// format of the tensor cores. Accumulation stays in single precision.
struct Tf32 {
  using real = float;
  using activation = float;
  static constexpr std::string_view name = "tf32";
};

/// Activations and their gradients are stored and multiplied in bfloat16, as by Keras' policy
/// "mixed_bfloat16".
struct MixedBFloat16 {
  using real = float;
  using activation = bfloat16;
  static constexpr std::string_view name = "mixed_bfloat16";
};

/// Activations and their gradients are stored and multiplied in IEEE half precision, as by Keras'
/// policy "mixed_float16". Half precision underflows below 6e-8, so the loss is scaled.
struct MixedFloat16 {
  using real = float;
  using activation = float16;
  static constexpr std::string_view name = "mixed_float16";
  static constexpr LossScaling loss_scaling{};
};

namespace detail {
/// The policy's loss scaling; {0, 0}, which disables scaling, for a policy that declares none.
template <class Precision>
inline constexpr LossScaling loss_scaling_of{0, 0};
template <class Precision>
  requires requires { Precision::loss_scaling; }
inline constexpr LossScaling loss_scaling_of<Precision> = Precision::loss_scaling;
}  // namespace detail

}  // namespace lockstep
