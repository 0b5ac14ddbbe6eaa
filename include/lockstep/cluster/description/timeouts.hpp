/// \file
/// How long the processes of a job wait for each other. Invariant: completed timeouts are all set,
/// and none is shorter than what it bounds.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep {

/// The timeouts of a job, equal in all of its processes. 0: the value of the variable, else the
/// default.
/// \code
///   lockstep::MultiWorkerMirrored<lockstep::Cpu> strategy;  // on oversubscribed machines
///   strategy.cluster.timeouts = {.silence = std::chrono::seconds(20)};
/// \endcode
struct ClusterTimeouts {
  using milliseconds = std::chrono::milliseconds;

  /// LOCKSTEP_SILENCE_TIMEOUT, 2 s: a peer that sends no heartbeat for this long is lost, and so is
  /// a data connection on which nothing is acknowledged.
  milliseconds silence{0};
  /// LOCKSTEP_VERDICT_TIMEOUT, 0.3 s plus the measured round trip: how long a failed exchange waits
  /// for the chief to name the cause.
  milliseconds verdict{0};
  /// LOCKSTEP_MESH_TIMEOUT, 10 s plus 4 ms times the square of the number of workers: how long a
  /// worker tries to make its data connections.
  milliseconds mesh{0};
  /// LOCKSTEP_LEAVE_TIMEOUT, 10 s: how long a worker that has finished waits for the others.
  milliseconds leave{0};

  bool operator==(const ClusterTimeouts&) const = default;
};

namespace detail {

/// A timeout, its names and its lower limit.
struct TimeoutRow {
  std::chrono::milliseconds ClusterTimeouts::* member;
  std::string_view name, variable;
  std::chrono::milliseconds least;
  std::string_view why;  ///< the reason for the limit
};

/// All timeouts, for parsing, checks and the join signature.
inline constexpr TimeoutRow timeout_rows[] = {
    {&ClusterTimeouts::silence, "silence", "LOCKSTEP_SILENCE_TIMEOUT",
     std::chrono::milliseconds(1000), "heartbeats are sent every 0.25 s"},
    {&ClusterTimeouts::verdict, "verdict", "LOCKSTEP_VERDICT_TIMEOUT",
     std::chrono::milliseconds(10), "the chief collects reports for half of it"},
    {&ClusterTimeouts::mesh, "mesh", "LOCKSTEP_MESH_TIMEOUT", std::chrono::milliseconds(100),
     "each connection is verified by a message in both directions"},
    {&ClusterTimeouts::leave, "leave", "LOCKSTEP_LEAVE_TIMEOUT", std::chrono::milliseconds(1),
     "timeouts are counted in milliseconds"}};

inline constexpr std::chrono::milliseconds max_timeout = std::chrono::hours(24);

/// Fills in the defaults. \throws UsageError if a timeout is too short or too long.
[[gnu::cold]] inline ClusterTimeouts complete_timeouts(ClusterTimeouts given, std::size_t workers) {
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
