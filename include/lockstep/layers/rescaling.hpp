/// \file
/// A linear transform of the inputs, as the first layer of a model.
#pragma once

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

/// Option created by `factor`.
struct Factor {
  float value = 1;
};
/// Option created by `offset`.
struct Offset {
  float value = 0;
};
/// The factor of Rescaling.
constexpr Factor factor(double value) { return {static_cast<float>(value)}; }
/// The offset of Rescaling.
constexpr Offset offset(double value) { return {static_cast<float>(value)}; }

/// Keras' Rescaling(scale, offset): y = factor * x + offset. Shape unchanged. `ls::rescale` does
/// the same in data pipelines.
/// \code
///   Rescaling<ls::factor(1 / 127.5), ls::offset(-1)>
/// \endcode
template <Factor Scale, Offset Plus = Offset{}>
struct Rescaling : ParameterlessLayer<RescalingOp> {
  static constexpr std::string_view name = "rescaling";
  static constexpr RescalingOp op(Shape in) { return {in, Scale.value, Plus.value}; }
};

static_assert(Layer<Rescaling<factor(0.5)>> && Pointwise<RescalingOp>);

}  // namespace lockstep
