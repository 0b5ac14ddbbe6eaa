/// \file
/// Dropout. Invariant: the mask is a function of (seed, pass, layer, ordinal of the example), so it
/// does not depend on how the batch is split, and backward regenerates it instead of storing it.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/options.hpp"

namespace lockstep {

/// Training: y = x / (1 - rate) where a uniform draw is at least rate, otherwise 0. Inference: y =
/// x.
struct DropoutOp {
  static constexpr std::string_view members = "in rate";
  Shape in;
  float rate = 0.5f;
  constexpr Shape out() const { return in; }
  bool operator==(const DropoutOp&) const = default;
};

/// Option created by `rate`, or from a number: `Dropout<0.25>`.
struct Rate {
  float value = 0.5f;
  constexpr Rate(float share) : value(share) {}
  constexpr Rate(double share) : value(static_cast<float>(share)) {}
  constexpr Rate(int share) : value(static_cast<float>(share)) {}
};
/// Fraction of the elements that dropout sets to zero, in [0, 1).
constexpr Rate rate(float value) { return {value}; }

/// Option created by `dropout`.
struct DropoutWithin {
  Rate rate{0.0f};
};
/// Dropout within a layer: the fraction that training sets to zero, in [0, 1). The others are divided by 1
/// - share.
///
/// - Attention layers: of the probabilities, which are not normalized again.
/// - Recurrent layers: of the input's features, the same in all steps of an example.
/// \code
///   GRU<64, ls::dropout(0.2)>
/// \endcode
constexpr DropoutWithin dropout(Rate share) { return {share}; }

namespace detail {
template <Rate R>
struct CheckDropout {
  static_assert(R.value >= 0 && R.value < 1,
                "lockstep::Dropout: the rate must be in [0, 1); write Dropout<rate(0.25f)>");
};
}  // namespace detail

/// Keras' Dropout (Srivastava et al., 2014), which rescales during training. `Dropout<0.25>` is
/// short for `Dropout<ls::rate(0.25f)>`. Shape unchanged.
template <Rate R>
struct Dropout : ParameterlessLayer<DropoutOp> {
  static constexpr std::string_view name = "dropout";
  static constexpr bool supports_masking = true;
  static constexpr DropoutOp op(Shape in) { return {in, R.value}; }

  static_assert(sizeof(detail::CheckDropout<R>) > 0);
};

static_assert(Layer<Dropout<rate(0.25f)>> && std::is_same_v<Dropout<0.1>, Dropout<rate(0.1f)>> &&
              std::is_same_v<Dropout<0>, Dropout<rate(0)>>);

}  // namespace lockstep
