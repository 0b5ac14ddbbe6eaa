/// \file
/// Waits that do not count time in which this process was suspended (Ctrl-Z, a debugger, a frozen
/// container).
#pragma once

#include <algorithm>
#include "lockstep/core/chrono.hpp"

namespace lockstep::detail {

/// Waits for up to `limit` of running time; `wait_until(time_point)` waits and returns whether it
/// succeeded. The wait is made in slices, and a slice that took far too long is followed by at least
/// one more, in which peers can arrive.
template <class WaitUntil>
bool wait_while_running(std::chrono::nanoseconds limit, const WaitUntil& wait_until) {
  using clock = std::chrono::steady_clock;
  const auto slice = std::min<std::chrono::nanoseconds>(
      std::max<std::chrono::nanoseconds>(limit / 8, std::chrono::milliseconds(1)),
      std::chrono::seconds(1));
  bool was_stopped = false;
  for (auto left = limit; left.count() > 0 || was_stopped;) {
    const auto begin = clock::now();
    const auto next = left.count() > 0 ? std::min(slice, left) : slice;
    if (wait_until(begin + next)) return true;
    was_stopped = clock::now() - begin > 2 * next + std::chrono::milliseconds(100);
    left -= next;
  }
  return false;
}

}  // namespace lockstep::detail
