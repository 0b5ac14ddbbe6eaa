/// \file
/// Shared by RandomContrast and RandomBrightness: the range of the values, and the change of an
/// image. Invariant: an op that maps a draw to a change needs no separate kernel.
#pragma once

#include <concepts>

#include "lockstep/layers/preprocessing/augmentation.hpp"

namespace lockstep {

/// Keras' value_range: the least and the largest value of an image.
struct ValueRange {
  static constexpr std::string_view members = "lower upper";
  float lower = 0, upper = 255;
  bool operator==(const ValueRange&) const = default;
};
/// The range of an image's values, to which they are limited: `value_range(0, 1)`. Default: 0 to
/// 255.
constexpr ValueRange value_range(double lower, double upper) {
  return {static_cast<float>(lower), static_cast<float>(upper)};
}

/// y = contrast (x - mean) + mean + plus, limited to the range; `mean` is that of the image's
/// channel.
struct ColorChange {
  double contrast = 1, plus = 0;
};

/// An op over images (height, width, channels) with `change(draw)`, which returns the ColorChange
/// for a number drawn uniformly from [0, 1), and with members `range` and `changes_contrast`.
template <class O>
concept RandomColorOp = Op<O> && requires(const O& op, double draw) {
  { op.change(draw) } -> std::same_as<ColorChange>;
  { op.in } -> std::convertible_to<Shape>;
  { op.range } -> std::convertible_to<ValueRange>;
  { O::changes_contrast } -> std::convertible_to<bool>;
};

}  // namespace lockstep
