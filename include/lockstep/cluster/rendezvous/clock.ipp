#pragma once

#include "lockstep/cluster/rendezvous/clock.hpp"

#include <cstdint>

#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

/// A control thread that wakes up later than this may itself have caused the silence that it
/// observes.
inline constexpr milliseconds lateness_limit{250};

std::string seconds(milliseconds time) {
  const auto tenths = static_cast<std::uint64_t>((time.count() + 50) / 100);
  if (tenths % 10 == 0) return format_text("{} s", tenths / 10);
  return format_text("{}.{} s", tenths / 10, tenths % 10);
}

milliseconds whole_milliseconds(Clock::duration time) {
  return std::chrono::duration_cast<milliseconds>(time);
}

bool WakeupMonitor::on_time(Clock::time_point now) {
  const bool punctual = now - last_ <= heartbeat_interval + lateness_limit;
  last_ = now;
  return punctual;
}

}  // namespace lockstep::detail
