/// \file
/// Activation re_lu6: min(max(x, 0), 6).
#pragma once

#include "lockstep/layers/activations/pointwise.hpp"

namespace lockstep {

/// y = min(max(x, 0), 6); NaN stays NaN, as in Keras, and passes its gradient, as in PyTorch.
struct ReLU6Op {
  static constexpr bool from_y = true;
  Shape in;
  constexpr Shape out() const { return in; }
  template <class T>
  T value(T x) const {
    return x < 0 ? T(0) : x > 6 ? T(6) : x;
  }
  template <class T>
  T derivative(T y) const {
    return y <= 0 || y >= 6 ? T(0) : T(1);
  }
  bool operator==(const ReLU6Op&) const = default;
};

/// Keras' relu6: min(max(x, 0), 6). Shape unchanged.
struct ReLU6 : ParameterlessLayer<ReLU6Op> {
  static constexpr std::string_view name = "re_lu6";
  static constexpr bool supports_masking = true;
};

static_assert(Layer<ReLU6> && Pointwise<ReLU6Op>);

}  // namespace lockstep
