/// \file
/// Random rotation of images.
#pragma once

#include <cmath>

#include "lockstep/layers/preprocessing/affine_image.hpp"

namespace lockstep {

/// Training: rotates x counterclockwise about its center, by an angle drawn uniformly from `factor`
/// times 2 pi. Inference: y = x.
struct RandomRotationOp {
  static constexpr std::string_view members = "in factor fill interpolation";
  Shape in;  // (height, width, channels)
  FactorRange factor;
  Fill fill = {};
  Interpolation interpolation = Interpolation::bilinear;
  constexpr Shape out() const { return in; }
  AffineMap map(double first, double) const {
    const auto lower = static_cast<double>(factor.lower), upper = static_cast<double>(factor.upper);
    const double angle = (lower + first * (upper - lower)) * 6.283185307179586476925;
    const double c = std::cos(angle), s = std::sin(angle);
    const double x = (in[1] - 1) / 2.0, y = (in[0] - 1) / 2.0;  // the center
    return {c, -s, x - x * c + y * s, s, c, y - x * s - y * c};
  }
  bool operator==(const RandomRotationOp&) const = default;
};

/// Keras' RandomRotation(factor): during training, rotates each image by a random angle. `factor`
/// is a fraction of the full circle, positive counterclockwise. Shape unchanged. Options: the fill
/// mode (default `fill_reflect`) and the interpolation (default `bilinear`).
/// \code
///   RandomRotation<ls::factor(0.05)>                             // up to 18 degrees either way
///   RandomRotation<ls::factor(0, 0.25), ls::fill_constant(0)>    // up to a quarter turn
/// \endcode
template <auto Range, auto... Options>
struct RandomRotation : detail::Augmentation {
  static constexpr std::string_view name = "random_rotation";
  static constexpr RandomRotationOp op(Shape in) {
    return {in, detail::factor_range(Range), detail::option<Fill, Options...>(Fill{}),
            detail::option<Interpolation, Options...>(Interpolation::bilinear)};
  }

  static_assert(sizeof(detail::CheckAffine<detail::factor_range(Range), FactorRange{},
                                           std::remove_cvref_t<decltype(Options)>...>) > 0);
};

static_assert(Layer<RandomRotation<factor(0.1)>> && AffineImageOp<RandomRotationOp>);

}  // namespace lockstep
