/// \file
/// Activation softplus: log(1 + exp(x)).
#pragma once

#include <cmath>

#include "lockstep/layers/activations/pointwise.hpp"

namespace lockstep {

/// y = log(1 + exp(x)), computed as max(x, 0) + log1p(exp(-|x|)) to avoid overflow. dy/dx = 1 -
/// exp(-y).
struct SoftplusOp {
  static constexpr bool from_y = true;
  Shape in;
  constexpr Shape out() const { return in; }
  template <class T>
  T value(T x) const {
    return (x > 0 ? x : T(0)) + std::log1p(std::exp(x > 0 ? -x : x));
  }
  template <class T>
  T derivative(T y) const {
    return -std::expm1(-y);
  }
  bool operator==(const SoftplusOp&) const = default;
};

/// Keras' softplus: log(1 + exp(x)). Shape unchanged.
struct Softplus : ParameterlessLayer<SoftplusOp> {
  static constexpr std::string_view name = "softplus";
  static constexpr bool supports_masking = true;
};

static_assert(Layer<Softplus> && Pointwise<SoftplusOp>);

}  // namespace lockstep
