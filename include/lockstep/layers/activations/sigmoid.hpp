/// \file
/// Activation sigmoid: 1 / (1 + exp(-x)).
#pragma once

#include <cmath>

#include "lockstep/layers/activations/pointwise.hpp"

namespace lockstep {

/// y = 1 / (1 + exp(-x)). dy/dx = y (1 - y).
struct SigmoidOp {
  static constexpr bool from_y = true;
  Shape in;
  constexpr Shape out() const { return in; }
  template <class T>
  T value(T x) const {
    return 1 / (1 + std::exp(-x));
  }
  template <class T>
  T derivative(T y) const {
    return y * (1 - y);
  }
  bool operator==(const SigmoidOp&) const = default;
};

/// Keras' sigmoid: 1 / (1 + exp(-x)). Shape unchanged.
struct Sigmoid : ParameterlessLayer<SigmoidOp> {
  static constexpr std::string_view name = "sigmoid";
  static constexpr bool supports_masking = true;
};

static_assert(Layer<Sigmoid> && Pointwise<SigmoidOp>);

}  // namespace lockstep
