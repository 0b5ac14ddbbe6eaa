/// \file
/// Activation silu: x / (1 + exp(-x)).
#pragma once

#include <cmath>

#include "lockstep/layers/activations/pointwise.hpp"

namespace lockstep {

/// y = x / (1 + exp(-x)).
struct SiLUOp {
  static constexpr bool from_y = false;
  Shape in;
  constexpr Shape out() const { return in; }
  template <class T>
  T value(T x) const {
    return x / (1 + std::exp(-x));
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
};

static_assert(Layer<SiLU> && Pointwise<SiLUOp>);

}  // namespace lockstep
