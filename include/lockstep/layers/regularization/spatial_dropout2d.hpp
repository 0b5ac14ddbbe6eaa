/// \file
/// Dropout of whole channels. Invariant: the set of dropped channels is a function of (seed, pass,
/// layer, ordinal of the example), so it does not depend on how the batch is split.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/regularization/dropout.hpp"

namespace lockstep {

/// Training: y[n, r, c, k] = x[n, r, c, k] / (1 - rate) where a uniform draw for (n, k) is at least
/// rate, otherwise 0. Inference: y = x.
struct SpatialDropout2DOp {
  static constexpr std::string_view members = "in rate";
  Shape in;  // (height, width, channels)
  float rate = 0.5f;
  constexpr Shape out() const { return in; }
  bool operator==(const SpatialDropout2DOp&) const = default;
};

namespace detail {
template <Rate R>
struct CheckSpatialDropout2D {
  static_assert(R.value >= 0 && R.value < 1,
                "lockstep::SpatialDropout2D: the rate must be in [0, 1); write "
                "SpatialDropout2D<rate(0.25f)>");
};
}  // namespace detail

/// Keras' SpatialDropout2D (Tompson et al., 2014): drops whole channels of an example, because
/// neighboring pixels are strongly correlated. `SpatialDropout2D<ls::rate(0.25f)>`. Shape
/// unchanged.
template <Rate R>
struct SpatialDropout2D {
  static constexpr std::string_view name = "spatial_dropout2d";
  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 3,
        "lockstep::SpatialDropout2D: the input does not have height, width and channels; put it "
        "before Flatten");
  };
  static constexpr bool accepts(Shape in) { return in.rank == 3; }
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
  static constexpr SpatialDropout2DOp op(Shape in) { return {in, R.value}; }

  static_assert(sizeof(detail::CheckSpatialDropout2D<R>) > 0);
};

static_assert(Layer<SpatialDropout2D<rate(0.25f)>>);

}  // namespace lockstep
