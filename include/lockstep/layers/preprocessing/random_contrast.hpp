/// \file
/// Random contrast of images.
#pragma once

#include "lockstep/layers/preprocessing/random_color.hpp"

namespace lockstep {

/// Training: y = contrast (x - mean) + mean, limited to the range, with the mean of the image's
/// channel and the contrast drawn uniformly from 1 - lower to 1 + upper. Inference: y = x.
struct RandomContrastOp {
  static constexpr std::string_view members = "in factor value_range";
  static constexpr bool changes_contrast = true;
  Shape in;  // (height, width, channels)
  FactorRange factor;
  ValueRange range;
  constexpr Shape out() const { return in; }
  constexpr ColorChange change(double draw) const {
    const auto lower = static_cast<double>(factor.lower), upper = static_cast<double>(factor.upper);
    return {.contrast = 1 - lower + draw * (lower + upper)};
  }
  bool operator==(const RandomContrastOp&) const = default;
};

namespace detail {

/// lower and upper of one factor are equal.
constexpr FactorRange contrast_range(Factor f) { return {f.value, f.value}; }
constexpr FactorRange contrast_range(FactorRange range) { return range; }

template <FactorRange F, ValueRange R, class... Options>
struct CheckRandomContrast {
  static_assert(is_factor(F),
                "lockstep::RandomContrast: factors must be in [-1, 1]; write "
                "RandomContrast<ls::factor(0.2)>");
  static_assert(R.lower < R.upper,
                "lockstep::RandomContrast: the first value of the range must be below the second; "
                "write ls::value_range(0, 1)");
  static_assert((is_any_of<Options, ValueRange> && ...),
                "lockstep::RandomContrast: an option is not supported; it accepts value_range");
};

}  // namespace detail

/// Keras' RandomContrast(factor, value_range): during training, multiplies the distance from the
/// channel's mean by a random number for each image, from 1 - lower to 1 + upper for
/// `factor(lower, upper)`, and from 1 - f to 1 + f for `factor(f)`, as Keras documents. (The layer
/// of Keras 3.15 draws from 1 to 1 + f.) Shape unchanged. Option: ls::value_range (default 0 to
/// 255).
/// \code
///   RandomContrast<ls::factor(0.2), ls::value_range(0, 1)>
/// \endcode
template <auto Range, auto... Options>
struct RandomContrast : detail::Augmentation {
  static constexpr std::string_view name = "random_contrast";
  static constexpr FactorRange factor = detail::contrast_range(Range);
  static constexpr ValueRange range = detail::option<ValueRange, Options...>(ValueRange{});
  static constexpr RandomContrastOp op(Shape in) { return {in, factor, range}; }

  static_assert(sizeof(detail::CheckRandomContrast<factor, range,
                                                   std::remove_cvref_t<decltype(Options)>...>) > 0);
};

static_assert(Layer<RandomContrast<factor(0.1)>> && RandomColorOp<RandomContrastOp>);

}  // namespace lockstep
