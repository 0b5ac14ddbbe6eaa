/// \file
/// The times of the rendezvous. Invariant: only the steady clock is asked, so that a change of the
/// date does nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "lockstep/core/text.hpp"

namespace lockstep::detail {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

inline constexpr milliseconds heartbeat_interval{250};
/// An observer that wakes up later than this may itself have been what stood still.
inline constexpr milliseconds lateness_limit{250};
/// Between two lines about who is missing; about who makes no progress.
inline constexpr milliseconds waiting_line_interval{5000}, stall_line_interval{10'000};

/// "60 s", "2.5 s", "0.3 s".
inline std::string seconds(milliseconds time) {
  const auto tenths = static_cast<std::uint64_t>((time.count() + 50) / 100);
  if (tenths % 10 == 0) return text({tenths / 10, " s"});
  return text({tenths / 10, ".", tenths % 10, " s"});
}

inline milliseconds whole_milliseconds(Clock::duration time) {
  return std::chrono::duration_cast<milliseconds>(time);
}

/// Tells whether a thread that wants to wake up each `heartbeat_interval` did so.
class Punctuality {
 public:
  explicit Punctuality(Clock::time_point now) : last_(now) {}

  /// At each wake-up. False: later than planned by more than `lateness_limit`.
  bool on_time(Clock::time_point now) {
    const bool punctual = now - last_ <= heartbeat_interval + lateness_limit;
    last_ = now;
    return punctual;
  }

 private:
  Clock::time_point last_;
};

}  // namespace lockstep::detail
