/// \file
/// A mask for padded steps of a sequence.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/mask.hpp"

namespace lockstep {

/// y[n, s] = x[n, s], or 0 if all features of the step are `value`. dx = dy there, otherwise 0.
struct MaskingOp {
  static constexpr std::string_view members = "in mask_value";
  Shape in;  // (steps, ..)
  float value = 0;
  constexpr Shape out() const { return in; }
  /// The mask of the same steps.
  constexpr MaskOp mask() const { return {in, value}; }
  bool operator==(const MaskingOp&) const = default;
};

/// A number, as it is written: `Masking<0.5>`.
struct MaskValue {
  float value = 0;
  constexpr MaskValue(float v) : value(v) {}
  constexpr MaskValue(double v) : value(static_cast<float>(v)) {}
  constexpr MaskValue(int v) : value(static_cast<float>(v)) {}
};

/// Keras' Masking(mask_value): steps whose features are all Value are padding, for the layers after
/// this one. Shape unchanged.
/// \code
///   struct Net : ls::Sequential<ls::Input<20, 8>, ls::Masking<>, ls::LSTM<32>, ls::Dense<1>> {};
/// \endcode
template <MaskValue Value = 0>
struct Masking {
  static constexpr std::string_view name = "masking";
  template <Shape In>
  struct Requires {
    static_assert(In.rank >= 2,
                  "lockstep::Masking: the input does not have steps and features; put "
                  "Reshape<ls::shape(steps, features)> before it");
  };
  static constexpr bool accepts(Shape in) { return in.rank >= 2; }
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
  static constexpr MaskingOp op(Shape in) { return {in, Value.value}; }
  static constexpr MaskOp mask(Shape in) { return op(in).mask(); }
};

static_assert(Layer<Masking<-1>> && detail::MakesMask<Masking<>>);

}  // namespace lockstep
