/// \file
/// Activation tanh: tanh(x).
#pragma once

#include <cmath>

#include "lockstep/layers/activations/pointwise.hpp"

namespace lockstep {

/// y = tanh(x). dy/dx = 1 - y^2.
struct TanhOp {
  static constexpr bool from_y = true;
  Shape in;
  constexpr Shape out() const { return in; }
  template <class T>
  T value(T x) const {
    return std::tanh(x);
  }
  template <class T>
  T derivative(T y) const {
    return 1 - y * y;
  }
  bool operator==(const TanhOp&) const = default;
};

/// Keras' tanh. Shape unchanged.
struct Tanh : ParameterlessLayer<TanhOp> {
  static constexpr std::string_view name = "tanh";
  static constexpr bool supports_masking = true;
};

static_assert(Layer<Tanh> && Pointwise<TanhOp>);

}  // namespace lockstep
