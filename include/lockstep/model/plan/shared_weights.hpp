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
  Table<StepId, StepId, Size> latest{};  // of each range of weights, the step that ran last
  StepId ranges{};
  for (StepId i = before(end); exists(i); --i) {
    PlacedStep& s = step[i];
    if (!s.trains() || !has_several_calls(s)) continue;
    StepId k{};
    while (k < ranges && step[latest[k]].w != s.w) ++k;
    if (k == ranges) {
      ++ranges;
    } else {
      step[latest[k]].completes_dw = false;
      s.adds_dw = true;
      result.bytes = std::max(result.bytes, s.w_count * element);
    }
    latest[k] = i;
  }
  return result;
}

}  // namespace lockstep::detail
