/// \file
/// Clocks and intervals of the rendezvous. Invariant: all times come from the steady clock, so that
/// setting the system time has no effect.
#pragma once

#include <chrono>
#include <string>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Between two heartbeats, and between two wake-ups of the control thread.
inline constexpr milliseconds heartbeat_interval{250};
/// Between two lines about missing ranks, and between two about a straggler.
inline constexpr milliseconds join_log_interval{5000}, stall_log_interval{10'000};

/// "60 s", "2.5 s", "0.3 s".
LOCKSTEP_COLD_DECL std::string seconds(milliseconds time);

/// Rounds down.
LOCKSTEP_COLD_DECL milliseconds whole_milliseconds(Clock::duration time);

/// Detects that the control thread woke up late: the process was stopped or starved, so the silence
/// of its peers proves nothing.
class WakeupMonitor {
 public:
  /// `now` counts as the last wake-up.
  explicit WakeupMonitor(Clock::time_point now) : last_(now) {}

  /// Called at each wake-up. False if it is more than `lateness_limit` late.
  LOCKSTEP_COLD_DECL bool on_time(Clock::time_point now);

 private:
  Clock::time_point last_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/clock.ipp"
#endif
