#pragma once

#include "lockstep/cluster/timeouts.hpp"

#include <cstdint>

#include "lockstep/core/error.hpp"

namespace lockstep {

namespace detail {

inline constexpr std::chrono::milliseconds max_timeout = std::chrono::hours(24);

ClusterTimeouts complete_timeouts(ClusterTimeouts given, std::size_t workers) {
  using std::chrono::milliseconds;
  for (const TimeoutRow& row : timeout_rows) {
    const milliseconds time = given.*row.member;
    if (time != milliseconds(0) && time < row.least)
      throw UsageError("timeouts: {} is {} ms; it must be at least {} ms, since {}", row.name,
                       time.count(), row.least.count(), row.why);
    if (time > max_timeout)
      throw UsageError("timeouts: {} is {} ms; it must be at most {} ms", row.name, time.count(),
                       max_timeout.count());
  }
  const auto n = static_cast<std::int64_t>(workers);
  const auto or_default = [](milliseconds& time, milliseconds by_default) {
    if (time == milliseconds(0)) time = by_default;
  };
  or_default(given.silence, milliseconds(2000));
  or_default(given.verdict, milliseconds(300));
  or_default(given.mesh, milliseconds(10'000 + 4 * n * n));
  or_default(given.leave, milliseconds(10'000));
  return given;
}

}  // namespace detail

}  // namespace lockstep
