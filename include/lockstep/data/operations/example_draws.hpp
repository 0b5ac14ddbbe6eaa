/// \file
/// The random generator of one example in a random operation. Invariant: the key is (seed, pass,
/// operation, number of random operations before it, ordinal), so the draws depend neither on how a
/// batch is split nor on the thread that gathers it, and no two operations share draws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/rng.hpp"

namespace lockstep::pipeline {

/// Key of all draws in a pass of the random `operation` that follows `place` other random
/// operations.
inline std::uint64_t draws_key(Pass pass, std::string_view operation, std::size_t place) {
  return mix(mix(mix(pass.seed, hash_name(operation)), place), pass.number);
}

/// Generator for example `ordinal` in the random `operation` that follows `place` other random
/// operations.
inline Philox example_draws(Pass pass, std::string_view operation, std::size_t place,
                            std::uint64_t ordinal) {
  return Philox(draws_key(pass, operation, place), ordinal);
}

}  // namespace lockstep::pipeline
