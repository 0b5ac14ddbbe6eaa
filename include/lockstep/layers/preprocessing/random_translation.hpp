/// \file
/// Random translation of images.
#pragma once

#include "lockstep/layers/preprocessing/affine_image.hpp"

namespace lockstep {

/// Training: y[r, c] = x[r - dy, c - dx], with dy drawn uniformly from `rows` times the height and
/// dx from `columns` times the width. Inference: y = x.
struct RandomTranslationOp {
  static constexpr std::string_view members = "in height_factor width_factor fill interpolation";
  Shape in;  // (height, width, channels)
  FactorRange rows, columns;
  Fill fill = {};
  Interpolation interpolation = Interpolation::bilinear;
  constexpr Shape out() const { return in; }
  constexpr AffineMap map(double first, double second) const {
    const auto distance = [](FactorRange range, double draw, int extent) {
      const auto lower = static_cast<double>(range.lower), upper = static_cast<double>(range.upper);
      return (lower + draw * (upper - lower)) * extent;
    };
    return {.x0 = -distance(columns, second, in[1]), .y0 = -distance(rows, first, in[0])};
  }
  bool operator==(const RandomTranslationOp&) const = default;
};

/// Keras' RandomTranslation(height_factor, width_factor): during training, shifts each image down
/// by a random fraction of its height and right by a random fraction of its width. Shape unchanged.
/// Options: the fill mode (default `fill_reflect`) and the interpolation (default `bilinear`).
/// \code
///   RandomTranslation<ls::factor(0.1), ls::factor(0.1)>           // up to a tenth either way
///   RandomTranslation<ls::factor(0, 0.2), ls::factor(0), ls::fill_constant(0), ls::nearest>
/// \endcode
template <auto HeightFactor, auto WidthFactor, auto... Options>
struct RandomTranslation : detail::Augmentation {
  static constexpr std::string_view name = "random_translation";
  static constexpr RandomTranslationOp op(Shape in) {
    return {in, detail::factor_range(HeightFactor), detail::factor_range(WidthFactor),
            detail::option<Fill, Options...>(Fill{}),
            detail::option<Interpolation, Options...>(Interpolation::bilinear)};
  }

  static_assert(sizeof(detail::CheckAffine<detail::factor_range(HeightFactor),
                                           detail::factor_range(WidthFactor),
                                           std::remove_cvref_t<decltype(Options)>...>) > 0);
};

static_assert(Layer<RandomTranslation<factor(0.1), factor(0, 0.2)>> &&
              AffineImageOp<RandomTranslationOp>);

}  // namespace lockstep
