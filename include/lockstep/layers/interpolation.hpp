/// \file
/// Where numbers between the pixels of an image, and outside of it, come from.
#pragma once

#include <string_view>

namespace lockstep {

/// What stands outside of an image, with Keras' names. `reflect`: d c b a | a b c d | d c b a.
/// `constant`: a number. `wrap`: a b c d | a b c d | a b c d. `nearest`: a a a a | a b c d |
/// d d d d.
enum class FillMode : int { reflect, constant, wrap, nearest };

/// Keras' fill_mode and fill_value in one option.
struct Fill {
  static constexpr std::string_view members = "mode value";
  FillMode mode = FillMode::reflect;
  float value = 0;
  bool operator==(const Fill&) const = default;
};
inline constexpr Fill fill_reflect{FillMode::reflect}, fill_wrap{FillMode::wrap},
    fill_nearest{FillMode::nearest};
/// `fill_constant(0.5f)`: this number outside of an image.
constexpr Fill fill_constant(float value = 0) { return {FillMode::constant, value}; }

/// Keras' interpolation. `nearest`: of halves the one away from 0, as in TensorFlow. `bilinear`:
/// of the four pixels around, each the more the nearer it is.
enum class Interpolation : int { nearest, bilinear };
inline constexpr Interpolation nearest = Interpolation::nearest, bilinear = Interpolation::bilinear;

}  // namespace lockstep
