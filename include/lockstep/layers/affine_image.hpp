/// \file
/// Images that are turned or moved. Invariant: an op over images that says where each pixel of its
/// result comes from needs no kernel of its own.
#pragma once

#include <concepts>

#include "lockstep/layers/augmentation.hpp"

namespace lockstep {

/// Pixel (column x, row y) of the result is what stands at column xx x + xy y + x0, row yx x + yy y
/// + y0 of the image.
struct AffineMap {
  double xx = 1, xy = 0, x0 = 0, yx = 0, yy = 1, y0 = 0;
};

/// An op over images (height, width, channels) with `map(first, second)`, the AffineMap of two
/// numbers drawn uniformly from [0, 1), and with `fill` and `interpolation`.
template <class O>
concept AffineImageOp = Op<O> && requires(const O& op, double draw) {
  { op.map(draw, draw) } -> std::same_as<AffineMap>;
  { op.in } -> std::convertible_to<Shape>;
  { op.fill } -> std::convertible_to<Fill>;
  { op.interpolation } -> std::convertible_to<Interpolation>;
};

}  // namespace lockstep
