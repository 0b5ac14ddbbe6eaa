/// \file
/// The times of the rendezvous. Invariant: only the steady clock is asked, so that a change of the
/// date does nothing.
#pragma once

#include <chrono>
#include <string>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

inline constexpr milliseconds heartbeat_interval{250};
/// Between two lines about who is missing; about who makes no progress.
inline constexpr milliseconds join_log_interval{5000}, stall_log_interval{10'000};

/// "60 s", "2.5 s", "0.3 s".
LOCKSTEP_COLD_DECL std::string seconds(milliseconds time);

LOCKSTEP_COLD_DECL milliseconds whole_milliseconds(Clock::duration time);

/// Tells whether a thread that wants to wake up each `heartbeat_interval` did so.
class WakeupMonitor {
 public:
  explicit WakeupMonitor(Clock::time_point now) : last_(now) {}

  /// At each wake-up. False: later than planned by more than `lateness_limit`.
  LOCKSTEP_COLD_DECL bool on_time(Clock::time_point now);

 private:
  Clock::time_point last_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/clock.ipp"
#endif
