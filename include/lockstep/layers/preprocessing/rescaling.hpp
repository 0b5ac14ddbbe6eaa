/// \file
/// A linear transform of the inputs, as the first layer of a model.
#pragma once

#include <type_traits>

#include "lockstep/layers/activations/pointwise.hpp"
#include "lockstep/layers/options.hpp"

namespace lockstep {

/// y = factor * x + offset.
struct RescalingOp {
  static constexpr std::string_view members = "in scale offset";
  static constexpr bool from_y = true;  // backward needs neither x nor y
  Shape in;
  float factor = 1, offset = 0;
  constexpr Shape out() const { return in; }
  template <class T>
  T value(T x) const {
    return T(factor) * x + T(offset);
  }
  template <class T>
  T derivative(T) const {
    return T(factor);
  }
  bool operator==(const RescalingOp&) const = default;
};

/// Option created by `factor`, or from a number.
struct Factor {
  float value = 1;
  constexpr Factor(float scale) : value(scale) {}
  constexpr Factor(double scale) : value(static_cast<float>(scale)) {}
  constexpr Factor(int scale) : value(static_cast<float>(scale)) {}
};
/// Option created by `offset`, or from a number.
struct Offset {
  float value = 0;
  constexpr Offset(float plus = 0) : value(plus) {}
  constexpr Offset(double plus) : value(static_cast<float>(plus)) {}
  constexpr Offset(int plus) : value(static_cast<float>(plus)) {}
};
/// The factor of Rescaling.
constexpr Factor factor(double value) { return {value}; }
/// The offset of Rescaling.
constexpr Offset offset(double value) { return {value}; }

/// Keras' Rescaling(scale, offset): y = factor * x + offset. Shape unchanged. `ls::rescale` does
/// the same in data pipelines.
/// \code
///   Rescaling<1 / 127.5, -1>   // or Rescaling<ls::factor(1 / 127.5), ls::offset(-1)>
/// \endcode
template <Factor Scale, Offset Plus = Offset{}>
struct Rescaling : ParameterlessLayer<RescalingOp> {
  static constexpr std::string_view name = "rescaling";
  static constexpr bool supports_masking = true;
  static constexpr RescalingOp op(Shape in) { return {in, Scale.value, Plus.value}; }
};

static_assert(Layer<Rescaling<factor(0.5)>> && Pointwise<RescalingOp> &&
              std::is_same_v<Rescaling<1 / 127.5, -1>, Rescaling<factor(1 / 127.5), offset(-1)>>);

}  // namespace lockstep
