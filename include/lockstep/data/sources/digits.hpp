/// \file
/// Drawn digits: a data set that needs no download. Invariants: image and label are a pure function
/// of (seed, part, index); each run of ten from a multiple of ten on has each class once.
#pragma once

#include <cstdint>

#include "lockstep/core/config.hpp"
#include "lockstep/core/count.hpp"
#include "lockstep/data/sources/splits.hpp"

namespace lockstep::datasets {

/// Drawn digits, in type and shape as MNIST: 28 x 28 x 1 bytes, bright on dark, ten classes in
/// equal parts. Strokes with drawn bend, slant, size, place, thickness and noise. The test part has
/// draws of its own.
/// \code
///   auto train = lockstep::datasets::digits().train();   // 10,000 digits
/// \endcode
LOCKSTEP_COLD_DECL Splits digits(Count count = 10'000, Count test_count = 2'000,
                                 std::uint64_t seed = 1);

}  // namespace lockstep::datasets

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/digits.ipp"
#endif
