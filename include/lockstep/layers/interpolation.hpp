/// \file
/// Resampling of images: values between pixels and outside the image.
#pragma once

#include <string_view>

namespace lockstep {

/// How an image continues outside its borders, with Keras' names.
///
///     reflect    d c b a | a b c d | d c b a
///     constant   v v v v | a b c d | v v v v
///     wrap       a b c d | a b c d | a b c d
///     nearest    a a a a | a b c d | d d d d
enum class FillMode : int { reflect, constant, wrap, nearest };
constexpr std::string_view keras_name(FillMode mode) {
  constexpr std::string_view names[]{"reflect", "constant", "wrap", "nearest"};
  return names[static_cast<int>(mode)];
}

/// Keras' fill_mode and fill_value as one option.
struct Fill {
  static constexpr std::string_view members = "fill_mode fill_value";
  FillMode mode = FillMode::reflect;
  float value = 0;
  bool operator==(const Fill&) const = default;
};
inline constexpr Fill fill_reflect{FillMode::reflect}, fill_wrap{FillMode::wrap},
    fill_nearest{FillMode::nearest};
/// A constant value outside the image: `fill_constant(0.5f)`.
constexpr Fill fill_constant(float value = 0) { return {FillMode::constant, value}; }

/// Keras' interpolation. `nearest` rounds halves away from 0, as TensorFlow does; `bilinear`
/// weights the four surrounding pixels by their proximity.
enum class Interpolation : int { nearest, bilinear };
inline constexpr Interpolation nearest = Interpolation::nearest, bilinear = Interpolation::bilinear;
constexpr std::string_view keras_name(Interpolation i) {
  return i == Interpolation::nearest ? "nearest" : "bilinear";
}

}  // namespace lockstep
