/// \file
/// Activation re_lu: max(x, 0).
#pragma once

#include "lockstep/layers/activations/pointwise.hpp"

namespace lockstep {

/// y = max(x, 0); NaN stays NaN, as in Keras, and passes its gradient, as in PyTorch.
struct ReLUOp {
  static constexpr bool from_y = true;
  Shape in;
  constexpr Shape out() const { return in; }
  template <class T>
  T value(T x) const {
    return x < 0 ? T(0) : x;
  }
  template <class T>
  T derivative(T y) const {
    return y <= 0 ? T(0) : T(1);
  }
  bool operator==(const ReLUOp&) const = default;
};

/// Keras' ReLU: max(x, 0). Shape unchanged.
struct ReLU : ParameterlessLayer<ReLUOp> {
  static constexpr std::string_view name = "re_lu";
  static constexpr bool supports_masking = true;
};

static_assert(Layer<ReLU> && Pointwise<ReLUOp>);

}  // namespace lockstep
