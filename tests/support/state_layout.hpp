/// \file
/// The layout of a state that a test has made.
#pragma once

#include "lockstep/training/checkpoint/job_state.hpp"

namespace testing {

inline lockstep::detail::StateLayout layout_of(const lockstep::detail::JobState& state) {
  lockstep::detail::StateLayout layout{.type = state.type,
                                       .weights = state.weights.size(),
                                       .state = state.state.size(),
                                       .totals = state.totals.size(),
                                       .signature = state.signature};
  for (const auto& slot : state.slot_values) layout.slot_names.push_back(slot.first);
  return layout;
}

}  // namespace testing
