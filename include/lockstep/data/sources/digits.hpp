/// \file
/// Drawn digits: a synthetic data set that needs no download. Invariants: image and label are a
/// pure function of (seed, part, index); images 10 k to 10 k + 9 contain each class once.
#pragma once

#include <cstdint>

#include "lockstep/core/config.hpp"
#include "lockstep/core/count.hpp"
#include "lockstep/data/sources/splits.hpp"

namespace lockstep::datasets {

/// Draws digits with the type and shape of MNIST: 28 x 28 x 1 bytes, bright on dark, ten balanced
/// classes. Bend, slant, size, position and thickness of the strokes and the noise are random. The
/// test part has independent draws.
/// \code
///   auto train = lockstep::datasets::digits().train();   // 10,000 digits
/// \endcode
LOCKSTEP_COLD_DECL Splits digits(Count count = 10'000, Count test_count = 2'000,
                                 std::uint64_t seed = 1);

}  // namespace lockstep::datasets

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/digits.ipp"
#endif
