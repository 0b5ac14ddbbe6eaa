/// \file
/// Affine transforms of images. Invariant: an op that maps each output pixel to its source position
/// needs no separate kernel.
#pragma once

#include <concepts>

#include "lockstep/layers/preprocessing/augmentation.hpp"

namespace lockstep {

/// Inverse map of an affine transform: output pixel (column x, row y) is read from column xx x + xy
/// y + x0 and row yx x + yy y + y0 of the image.
struct AffineMap {
  double xx = 1, xy = 0, x0 = 0, yx = 0, yy = 1, y0 = 0;
};

/// An op over images (height, width, channels) with `map(first, second)`, which returns the
/// AffineMap for two numbers drawn uniformly from [0, 1), and with members `fill` and
/// `interpolation`.
template <class O>
concept AffineImageOp = Op<O> && requires(const O& op, double draw) {
  { op.map(draw, draw) } -> std::same_as<AffineMap>;
  { op.in } -> std::convertible_to<Shape>;
  { op.fill } -> std::convertible_to<Fill>;
  { op.interpolation } -> std::convertible_to<Interpolation>;
};

}  // namespace lockstep
