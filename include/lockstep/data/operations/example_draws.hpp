/// \file
/// The generator of one example in a random operation. Invariant: keyed by (seed, pass, operation,
/// its place among the random operations of the pipeline, ordinal), so that draws do not depend on
/// how a batch was cut or on which thread gathers it, and no two operations draw the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/rng.hpp"

namespace lockstep::pipeline {

/// Key of all draws of the random `operation` that has `place` such before it, in a pass.
inline std::uint64_t draws_key(Pass pass, std::string_view operation, std::size_t place) {
  return mix(mix(mix(pass.seed, hash_name(operation)), place), pass.number);
}

/// Generator of the example `ordinal` in the random `operation` that has `place` such before it.
inline Philox example_draws(Pass pass, std::string_view operation, std::size_t place,
                            std::uint64_t ordinal) {
  return Philox(draws_key(pass, operation, place), ordinal);
}

}  // namespace lockstep::pipeline
