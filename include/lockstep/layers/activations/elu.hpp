/// \file
/// Activation elu: x if x > 0, otherwise exp(x) - 1.
#pragma once

#include <cmath>

#include "lockstep/layers/activations/pointwise.hpp"

namespace lockstep {

/// y = x if x > 0, otherwise exp(x) - 1. dy/dx = 1 or y + 1.
struct ELUOp {
  static constexpr bool from_y = true;
  Shape in;
  constexpr Shape out() const { return in; }
  template <class T>
  T value(T x) const {
    return x > 0 ? x : std::expm1(x);
  }
  template <class T>
  T derivative(T y) const {
    return y > 0 ? T(1) : y + 1;
  }
  bool operator==(const ELUOp&) const = default;
};

/// Keras' ELU with alpha = 1 (Clevert et al., 2015). Shape unchanged.
struct ELU : ParameterlessLayer<ELUOp> {
  static constexpr std::string_view name = "elu";
  static constexpr bool supports_masking = true;
};

static_assert(Layer<ELU> && Pointwise<ELUOp>);

}  // namespace lockstep
