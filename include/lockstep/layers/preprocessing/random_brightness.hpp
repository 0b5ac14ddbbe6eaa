/// \file
/// Random brightness of images.
#pragma once

#include "lockstep/layers/preprocessing/random_color.hpp"

namespace lockstep {

/// Training: y = x + delta, limited to the range, with delta drawn uniformly from `factor` times
/// the length of the range. Inference: y = x.
struct RandomBrightnessOp {
  static constexpr std::string_view members = "in factor value_range";
  static constexpr bool changes_contrast = false;
  Shape in;  // (height, width, channels)
  FactorRange factor;
  ValueRange range;
  constexpr Shape out() const { return in; }
  constexpr ColorChange change(double draw) const {
    const auto lower = static_cast<double>(factor.lower), upper = static_cast<double>(factor.upper);
    const double length = static_cast<double>(range.upper) - static_cast<double>(range.lower);
    return {.plus = (lower + draw * (upper - lower)) * length};
  }
  bool operator==(const RandomBrightnessOp&) const = default;
};

namespace detail {
template <FactorRange F, ValueRange R, class... Options>
struct CheckRandomBrightness {
  static_assert(is_factor(F),
                "lockstep::RandomBrightness: factors must be in [-1, 1]; write "
                "RandomBrightness<ls::factor(0.2)>");
  static_assert(
      R.lower < R.upper,
      "lockstep::RandomBrightness: the first value of the range must be below the second; "
      "write ls::value_range(0, 1)");
  static_assert((is_any_of<Options, ValueRange> && ...),
                "lockstep::RandomBrightness: an option is not supported; it accepts value_range");
};
}  // namespace detail

/// Keras' RandomBrightness(factor, value_range): during training, adds a random part of the range
/// to each image, the same for all its channels. Shape unchanged. Option: ls::value_range (default
/// 0 to 255).
/// \code
///   RandomBrightness<ls::factor(0.2), ls::value_range(0, 1)>    // by up to 0.2 either way
/// \endcode
template <auto Range, auto... Options>
struct RandomBrightness : detail::Augmentation {
  static constexpr std::string_view name = "random_brightness";
  static constexpr FactorRange factor = detail::factor_range(Range);
  static constexpr ValueRange range = detail::option<ValueRange, Options...>(ValueRange{});
  static constexpr RandomBrightnessOp op(Shape in) { return {in, factor, range}; }

  static_assert(sizeof(detail::CheckRandomBrightness<factor, range,
                                                     std::remove_cvref_t<decltype(Options)>...>) >
                0);
};

static_assert(Layer<RandomBrightness<factor(0.1)>> && RandomColorOp<RandomBrightnessOp>);

}  // namespace lockstep
