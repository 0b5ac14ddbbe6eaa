/// \file
/// Activation gelu: x Phi(x), with Phi the standard normal distribution function.
#pragma once

#include <cmath>

#include "lockstep/layers/activations/pointwise.hpp"

namespace lockstep {

/// y = x Phi(x) = x (1 + erf(x / sqrt(2))) / 2. dy/dx = Phi(x) + x phi(x), with phi the density.
struct GELUOp {
  static constexpr float inverse_sqrt2 =
      0.70710678118654752440f;  // rounded to float even in float64, as in Keras
  static constexpr bool from_y = false;
  Shape in;
  constexpr Shape out() const { return in; }
  template <class T>
  T value(T x) const {
    return x * T(0.5) * (1 + std::erf(x * T(inverse_sqrt2)));
  }
  template <class T>
  T derivative(T x) const {
    const T z = x * T(inverse_sqrt2);
    const T density =
        T(inverse_sqrt2) * T(0.56418958354775628695) * std::exp(-z * z);  // 1 / sqrt(pi)
    return T(0.5) * (1 + std::erf(z)) + x * density;
  }
  bool operator==(const GELUOp&) const = default;
};

/// Keras' gelu, the exact form without the tanh approximation (Hendrycks and Gimpel, 2016). Shape
/// unchanged.
struct GELU : ParameterlessLayer<GELUOp> {
  static constexpr std::string_view name = "gelu";
};

static_assert(Layer<GELU> && Pointwise<GELUOp>);

}  // namespace lockstep
