/// \file
/// Activation gelu: x Phi(x), with Phi the standard normal distribution function.
#pragma once

#include <cmath>
#include <numbers>

#include "lockstep/layers/activations/pointwise.hpp"

namespace lockstep {

/// y = x Phi(x) = x (1 + erf(x / sqrt(2))) / 2, computed as x erfc(-x / sqrt(2)) / 2, which keeps
/// its digits far below 0. dy/dx = Phi(x) + x phi(x), with phi the density.
struct GELUOp {
  static constexpr bool from_y = false;
  Shape in;
  constexpr Shape out() const { return in; }
  template <class T>
  T value(T x) const {
    return x * T(0.5) * std::erfc(-x * inverse_sqrt2<T>);
  }
  template <class T>
  T derivative(T x) const {
    const T z = x * inverse_sqrt2<T>;
    const T density = inverse_sqrt2<T> * std::numbers::inv_sqrtpi_v<T> * std::exp(-z * z);
    return T(0.5) * std::erfc(-z) + x * density;
  }
  bool operator==(const GELUOp&) const = default;

 private:
  template <class T>
  static constexpr T inverse_sqrt2 = std::numbers::sqrt2_v<T> / 2;
};

/// Keras' gelu, the exact form without the tanh approximation (Hendrycks and Gimpel, 2016). Shape
/// unchanged.
struct GELU : ParameterlessLayer<GELUOp> {
  static constexpr std::string_view name = "gelu";
  static constexpr bool supports_masking = true;
};

static_assert(Layer<GELU> && Pointwise<GELUOp>);

}  // namespace lockstep
