/// \file
/// Finds connections of a mesh over which nothing arrives any more, although both processes live.
/// Invariants: a peer that does not read, or a process that is stopped, is not taken for a dead
/// connection; time counts only while the caller ran.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// The sockets of one process' connections. Each is in one of these states:
///
///     fine ── retransmits, or probes without an answer ──> stuck ── `limit` ──> dead
///       ^                                                    |
///       └──────────────── an acknowledgement ────────────────┘
///
/// The kernel sends its own probes over idle connections (keepalive). Its TCP_USER_TIMEOUT would
/// count the time for which a live peer does not read too, such as that of a job that is suspended.
class GlooLinks {
 public:
  using Clock = std::chrono::steady_clock;

  /// An end of the connection to `rank`: where this process listens for it, or that one for us.
  struct Endpoint {
    sockaddr_storage address{};
    std::size_t rank = 0;
    bool is_mine = false;
  };

  GlooLinks() = default;
  /// Looks for the sockets, and turns on their keepalive.
  LOCKSTEP_DECL GlooLinks(const std::vector<Endpoint>& places, std::chrono::milliseconds limit);

  /// How many connections are watched.
  std::size_t size() const { return links_.size(); }
  std::chrono::milliseconds limit() const { return limit_; }

  /// To be called some times a second. \return the rank at the other end of a dead connection.
  LOCKSTEP_DECL std::optional<std::size_t> find_dead(Clock::time_point now);

 private:
  struct Link {
    std::size_t rank = 0;
    int descriptor = -1;
    sockaddr_storage here{}, there{};
    std::optional<Clock::time_point> stuck_since{};  ///< stuck
  };

  LOCKSTEP_DECL static std::optional<sockaddr_storage> address_of(int descriptor,
                                                                  decltype(getsockname)* name_of);
  /// Gloo may have closed it, and the program opened another descriptor of this number.
  LOCKSTEP_DECL static bool is_same_socket(const Link& link);
  /// A probe after a second, then up to 100 in the limit. The kernel gives the connection up later
  /// than `find_dead` does, if nobody calls that. It refuses more than 127 probes.
  LOCKSTEP_DECL void keep_alive(int descriptor) const;

  std::chrono::milliseconds limit_{0};
  std::vector<Link> links_;
  Clock::time_point last_{};
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/gloo_links.ipp"
#endif
