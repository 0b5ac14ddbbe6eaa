/// \file
/// Noise added during training. Invariant: the noise is a function of (seed, pass, layer, ordinal
/// of the example), so it does not depend on how the batch is split.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/options.hpp"

namespace lockstep {

/// Training: y = x + stddev z, with z drawn from the standard normal distribution. Inference: y =
/// x.
struct GaussianNoiseOp {
  static constexpr std::string_view members = "in stddev";
  Shape in;
  float stddev = 0.1f;
  constexpr Shape out() const { return in; }
  bool operator==(const GaussianNoiseOp&) const = default;
};

/// Option created by `stddev`, or from a number: `GaussianNoise<0.1>`.
struct StandardDeviation {
  float value = 0.1f;
  constexpr StandardDeviation(float deviation) : value(deviation) {}
  constexpr StandardDeviation(double deviation) : value(static_cast<float>(deviation)) {}
  constexpr StandardDeviation(int deviation) : value(static_cast<float>(deviation)) {}
};
/// Standard deviation of GaussianNoise, in [0, 1].
constexpr StandardDeviation stddev(float value) { return {value}; }

namespace detail {
template <StandardDeviation S>
struct CheckGaussianNoise {
  static_assert(S.value >= 0 && S.value <= 1,
                "lockstep::GaussianNoise: the standard deviation must be in [0, 1]; write "
                "GaussianNoise<stddev(0.1f)>");
};
}  // namespace detail

/// Keras' GaussianNoise. `GaussianNoise<0.1>` is short for `GaussianNoise<ls::stddev(0.1f)>`. Shape
/// unchanged.
template <StandardDeviation S>
struct GaussianNoise : ParameterlessLayer<GaussianNoiseOp> {
  static constexpr std::string_view name = "gaussian_noise";
  static constexpr bool supports_masking = true;
  static constexpr GaussianNoiseOp op(Shape in) { return {in, S.value}; }

  static_assert(sizeof(detail::CheckGaussianNoise<S>) > 0);
};

static_assert(Layer<GaussianNoise<stddev(0.1f)>>);

}  // namespace lockstep
