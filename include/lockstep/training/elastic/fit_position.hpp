/// \file
/// The part of a fit's position that only an elastic job needs: a checkpoint is saved between two
/// executions, but a loss may interrupt one. Invariant: a process that reads it continues with the
/// step that its sender would make next.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/concepts/callback_state.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/training/checkpoint/job_state.hpp"
#include "lockstep/training/step/any_replicas.hpp"

namespace lockstep::detail {

/// Travels with the states of the callbacks, as the last of them.
struct FitPosition {
  std::uint64_t before = 0, steps = 0;  ///< steps of the model before the execution, and within it
  RunRequests requests{};               ///< effective after the last execution or epoch
  RunRequests agreed{};                 ///< of the last step
  std::optional<double> rate_before{};  ///< the rate before the hooks of the last execution
  std::optional<std::uint64_t> last_checkpoint{};  ///< in steps of the model

  LOCKSTEP_COLD_DECL void add_to(JobState& state) const;
  /// Removes the position from the state. \throws Error if there is none.
  LOCKSTEP_COLD_DECL static FitPosition take_from(JobState& state);
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/elastic/fit_position.ipp"
#endif
