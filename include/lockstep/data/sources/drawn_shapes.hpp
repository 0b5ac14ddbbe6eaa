/// \file
/// Drawn shapes: coloured images that need no download. Invariants: image and label are a pure
/// function of (seed, part, index); each run of ten from a multiple of ten on has each class once;
/// a class stays the same when the image is mirrored or turned.
///
/// Not part of <lockstep/lockstep.hpp>.
#pragma once

#include <cstdint>

#include "lockstep/core/config.hpp"
#include "lockstep/core/count.hpp"
#include "lockstep/data/sources/splits.hpp"

namespace lockstep::datasets {

namespace detail {

/// How far (x, y) lies outside of the border of a shape, negative inside; the shape lies within the
/// circle of radius 1. Classes: disc, ring, square, frame, triangle, cross, star, crescent, bar,
/// pair of discs.
LOCKSTEP_DECL float distance_to_shape(std::int32_t label, float x, float y);

}  // namespace detail

/// Drawn shapes, in type and shape as CIFAR-10: 32 x 32 x 3 bytes, ten classes in equal parts:
/// disc, ring, square, frame, triangle, cross, star, crescent, bar, pair of discs. Colours, ground,
/// size, place, turn and noise are drawn, so that no class has a colour or a place. The test part
/// has draws of its own.
/// \code
///   auto train = lockstep::datasets::shapes().train();   // 10,000 images
/// \endcode
LOCKSTEP_COLD_DECL Splits shapes(Count count = 10'000, Count test_count = 2'000,
                                 std::uint64_t seed = 1);

}  // namespace lockstep::datasets

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/drawn_shapes.ipp"
#endif
