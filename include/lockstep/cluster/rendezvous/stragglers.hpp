/// \file
/// The time that each rank spends in each phase. Invariant: every moment between two calls counts
/// for exactly one phase, the one entered last.
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

/// Accumulates the time of one rank in each phase.
/// \code
///   lockstep::PhaseClock clock;
///   clock.enter(lockstep::Phase::forward);
///   lockstep::PhaseTimes since_then = clock.read_and_reset();
/// \endcode
class PhaseClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// Adds the time since the last call to the current phase and enters `phase`.
  LOCKSTEP_DECL void enter(Phase phase, Clock::time_point now = Clock::now());
  /// The times since the last call of this function.
  LOCKSTEP_DECL PhaseTimes read_and_reset(Clock::time_point now = Clock::now());

 private:
  Phase phase_ = Phase::idle;
  Clock::time_point since_ = Clock::now();
  PhaseTimes spent_{};
};

namespace detail {

/// A table with a row per rank and a column per phase that occurred. A rank waits for the others in
/// `reduce`, so the straggler spends the most time outside of it. The last line compares the
/// straggler with the other ranks.
LOCKSTEP_COLD_DECL std::string straggler_table(int epoch, std::span<const PhaseTimes> ranks);

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/stragglers.ipp"
#endif
