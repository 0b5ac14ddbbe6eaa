/// \file
/// Drawn shapes: synthetic color images that need no download. Invariants: image and label are a
/// pure function of (seed, part, index); images 10 k to 10 k + 9 contain each class once; the class
/// of an image does not change when it is mirrored or rotated.
///
/// Not part of <lockstep/lockstep.hpp>.
#pragma once

#include <cstdint>

#include "lockstep/core/config.hpp"
#include "lockstep/core/count.hpp"
#include "lockstep/data/sources/splits.hpp"

namespace lockstep::datasets {

namespace detail {

/// Signed distance of (x, y) from the border of a shape, negative inside; the shape fits into the
/// unit circle. Classes: disc, ring, square, frame, triangle, cross, star, crescent, bar, pair of
/// discs.
LOCKSTEP_DECL float distance_to_shape(std::int32_t label, float x, float y);

}  // namespace detail

/// Draws shapes with the type and shape of CIFAR-10: 32 x 32 x 3 bytes, ten balanced classes: disc,
/// ring, square, frame, triangle, cross, star, crescent, bar, pair of discs. Colors, background,
/// size, position, rotation and noise are random, so neither color nor position reveals the class.
/// The test part has independent draws.
/// \code
///   auto train = lockstep::datasets::shapes().train();   // 10,000 images
/// \endcode
LOCKSTEP_COLD_DECL Splits shapes(Count count = 10'000, Count test_count = 2'000,
                                 std::uint64_t seed = 1);

}  // namespace lockstep::datasets

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/drawn_shapes.ipp"
#endif
