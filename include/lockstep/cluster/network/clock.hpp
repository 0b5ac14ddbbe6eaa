/// \file
/// Clocks and intervals of the rendezvous. Invariant: all times come from the steady clock, so that
/// setting the system time has no effect.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Between two heartbeats, and between two wake-ups of the control thread.
inline constexpr milliseconds heartbeat_interval{250};
/// Between two lines about missing ranks, and between two about a straggler.
inline constexpr milliseconds join_log_interval{5000}, stall_log_interval{10'000};

/// "60 s", "2.5 s", "0.3 s".
[[gnu::cold]] inline std::string seconds(milliseconds time) {
  const auto tenths = static_cast<std::uint64_t>((time.count() + 50) / 100);
  if (tenths % 10 == 0) return format_text("{} s", tenths / 10);
  return format_text("{}.{} s", tenths / 10, tenths % 10);
}

/// Rounds down.
[[gnu::cold]] inline milliseconds whole_milliseconds(Clock::duration time) {
  return std::chrono::duration_cast<milliseconds>(time);
}

/// A control thread that wakes up later than this may itself have caused the silence that it
/// observes.
inline constexpr milliseconds lateness_limit{250};

/// Detects that the control thread woke up late: the process was stopped or starved, so the silence
/// of its peers proves nothing.
class WakeupMonitor {
 public:
  /// `now` counts as the last wake-up.
  explicit WakeupMonitor(Clock::time_point now) : last_(now) {}

  /// Called at each wake-up. False if it is more than `lateness_limit` late.
  [[gnu::cold]] bool on_time(Clock::time_point now) {
    const bool punctual = now - last_ <= heartbeat_interval + lateness_limit;
    last_ = now;
    return punctual;
  }

 private:
  Clock::time_point last_;
};

}  // namespace lockstep::detail
