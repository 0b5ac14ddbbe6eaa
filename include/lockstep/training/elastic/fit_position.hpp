/// \file
/// The part of a fit's position that only an elastic job needs: a checkpoint is saved after the
/// hooks between two executions, but a boundary may be within one, and is before its hooks.
/// Invariant: a process that reads it continues as its sender does.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/training/step/any_replicas.hpp"

namespace lockstep::detail {

/// Travels with the states of the callbacks, as the last of them.
struct FitPosition {
  std::uint64_t before = 0, steps = 0;  ///< steps of the model before the execution, and within it
  RunRequests requests{};               ///< effective after the last execution or epoch
  RunRequests agreed{};                 ///< of the last step
  std::optional<std::uint64_t> last_checkpoint{};  ///< in steps of the model
};

}  // namespace lockstep::detail
