/// \file
/// Detects a dead connection: both processes live, but no packet arrives any more. Invariants: a
/// peer that does not read, or a suspended process, does not count as a dead connection; time counts
/// only while the caller was running.
#pragma once

#include <chrono>
#include <optional>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Watches one socket, which is in one of these states:
///
///     fine ── retransmits, or probes without an answer ──> stuck ── `limit` ──> dead
///       ^                                                    |
///       └──────────────── an acknowledgement ────────────────┘
///
/// TCP_USER_TIMEOUT is not used, because it also counts the time for which a live peer does not
/// read, as in a suspended job.
class TcpHealth {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// Small messages are not delayed. An idle connection sends a probe after a second, then up to 100
  /// within the limit. The kernel's own limit is longer than that of `is_dead`; it takes effect if
  /// nothing calls `is_dead`. The kernel accepts at most 127 probes.
  LOCKSTEP_COLD_DECL static void prepare(int socket, std::chrono::milliseconds limit);

  /// Call it several times a second while a transfer waits. `ran`: the caller was not suspended
  /// since the last call. \return whether the connection was stuck for `limit`.
  LOCKSTEP_COLD_DECL bool is_dead(int socket, TimePoint now, bool ran,
                                  std::chrono::milliseconds limit);

 private:
  std::optional<TimePoint> stuck_since_{};
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/tcp/tcp_health.ipp"
#endif
