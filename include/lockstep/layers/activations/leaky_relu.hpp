/// \file
/// Activation leaky_relu: x if x > 0, otherwise slope * x.
#pragma once

#include "lockstep/layers/activations/pointwise.hpp"
#include "lockstep/layers/options.hpp"

namespace lockstep {

/// y = x if x > 0, otherwise slope * x.
struct LeakyReLUOp {
  static constexpr std::string_view members = "in negative_slope";
  static constexpr bool from_y = true;
  Shape in;
  float slope = 0.3f;
  constexpr Shape out() const { return in; }
  template <class T>
  T value(T x) const {
    return x > 0 ? x : T(slope) * x;
  }
  template <class T>
  T derivative(T y) const {
    return y > 0 ? T(1) : T(slope);
  }
  bool operator==(const LeakyReLUOp&) const = default;
};

/// Option created by `negative_slope`, or from a number: `LeakyReLU<0.2>`.
struct NegativeSlope {
  float value = 0.3f;
  constexpr NegativeSlope() = default;
  constexpr NegativeSlope(float slope) : value(slope) {}
  constexpr NegativeSlope(double slope) : value(static_cast<float>(slope)) {}
  constexpr NegativeSlope(int slope) : value(static_cast<float>(slope)) {}
};
/// The slope of LeakyReLU for negative x; greater than 0.
constexpr NegativeSlope negative_slope(float value) { return {value}; }

namespace detail {
template <NegativeSlope Slope>
struct CheckLeakyReLU {
  static_assert(Slope.value > 0,
                "lockstep::LeakyReLU: the slope must be above 0; use ReLU for a slope of 0");
};
}  // namespace detail

/// Keras' LeakyReLU layer, by default with slope 0.3. Keras' activation function `leaky_relu` is
/// `LeakyReLU<negative_slope(0.2f)>`. Shape unchanged.
template <NegativeSlope Slope = NegativeSlope{}>
struct LeakyReLU : ParameterlessLayer<LeakyReLUOp> {
  static constexpr std::string_view name = "leaky_re_lu";
  static constexpr bool supports_masking = true;
  static constexpr LeakyReLUOp op(Shape in) { return {in, Slope.value}; }

  static_assert(sizeof(detail::CheckLeakyReLU<Slope>) > 0);
};

static_assert(Layer<LeakyReLU<>> && Pointwise<LeakyReLUOp>);

}  // namespace lockstep
