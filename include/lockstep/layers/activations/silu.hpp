/// \file
/// Activation silu: x / (1 + exp(-x)).
#pragma once

#include <cmath>

#include "lockstep/layers/activations/pointwise.hpp"

namespace lockstep {

/// y = x / (1 + exp(-x)). For x < 0 it is x e^2 / (1 + e^2) with e = exp(x / 2), since exp(-x)
/// overflows before y underflows.
struct SiLUOp {
  static constexpr bool from_y = false;
  Shape in;
  constexpr Shape out() const { return in; }
  template <class T>
  T value(T x) const {
    if (x > 0) return x / (1 + std::exp(-x));
    const T e = std::exp(x / 2);
    return x * e / (1 + e * e) * e;
  }
  template <class T>
  T derivative(T x) const {
    const T s = 1 / (1 + std::exp(-x));
    return s * (1 + x * (1 - s));
  }
  bool operator==(const SiLUOp&) const = default;
};

/// Keras' silu (swish): x / (1 + exp(-x)). Shape unchanged.
struct SiLU : ParameterlessLayer<SiLUOp> {
  static constexpr std::string_view name = "silu";
  static constexpr bool supports_masking = true;
};

static_assert(Layer<SiLU> && Pointwise<SiLUOp>);

}  // namespace lockstep
