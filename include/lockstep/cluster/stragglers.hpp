/// \file
/// Where the ranks of a job spend their time. Invariant: each moment between two calls counts for
/// one phase, that which was entered last.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "lockstep/core/config.hpp"
#include "lockstep/core/phase.hpp"

namespace lockstep {

/// Seconds in each phase.
using PhaseTimes = std::array<double, static_cast<std::size_t>(last_phase) + 1>;

/// Adds up the time of one rank in each phase.
/// \code
///   lockstep::PhaseClock clock;
///   clock.enter(lockstep::Phase::forward);
///   lockstep::PhaseTimes since_then = clock.read_and_reset();
/// \endcode
class PhaseClock {
 public:
  using Clock = std::chrono::steady_clock;

  LOCKSTEP_DECL void enter(Phase phase, Clock::time_point now = Clock::now());
  /// What was spent since the last call, and begins anew.
  LOCKSTEP_DECL PhaseTimes read_and_reset(Clock::time_point now = Clock::now());

 private:
  Phase phase_ = Phase::idle;
  Clock::time_point since_ = Clock::now();
  PhaseTimes spent_{};
};

namespace detail {

/// One line a rank and one column a phase that anybody was in. A rank waits for the others in
/// `reduce`, so the straggler is who spends the most outside of it.
LOCKSTEP_COLD_DECL std::string straggler_table(int epoch, std::span<const PhaseTimes> ranks);

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/stragglers.ipp"
#endif
