/// \file
/// Plan pass: weights that several steps use, as those of shared layers and tied weights do.
/// Invariant: backward of the last step in the order of forward, which runs first, overwrites the
/// gradients; that of each other one adds to them.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/model/plan/places.hpp"

namespace lockstep::detail {

/// Where a kernel writes gradients that are added to those of another step.
/// \code
///   forward    tower (w)       tower (w)
///   backward                   dw = ...      the second call overwrites
///              shared = ...                  the first one writes here,
///              dw += shared                  and completes the gradients
/// \endcode
struct SharedGradient {
  std::size_t offset = 0, bytes = 0;  ///< in the per-step arena
};

/// Sets `adds_dw` and `completes_dw` of each step. `element`: bytes of a weight. \returns the memory
/// that one step at a time needs; its offset is still 0.
template <std::size_t Size>
constexpr SharedGradient add_shared_weights(Table<StepId, PlacedStep, Size>& step, StepId end,
                                            std::size_t element) {
  SharedGradient result;
  for (StepId i{}; i < end; ++i)
    for (StepId k{}; k < i; ++k) {
      PlacedStep &first = step[k], &later = step[i];
      if (!first.trains() || !later.trains() || first.w >= later.w + later.w_count ||
          later.w >= first.w + first.w_count)
        continue;
      first.adds_dw = true;
      later.completes_dw = false;
      result.bytes = std::max(result.bytes, first.w_count * element);
    }
  return result;
}

}  // namespace lockstep::detail
