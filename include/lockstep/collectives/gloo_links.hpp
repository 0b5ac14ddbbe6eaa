/// \file
/// Detects dead connections of a mesh: both processes live, but no packet arrives any more.
/// Invariants: a peer that does not read, or a suspended process, does not count as a dead
/// connection; time counts only while the caller was running.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/collectives/tcp_health.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Watches the sockets of one process' connections; see TcpHealth.
class GlooLinks {
 public:
  using Clock = std::chrono::steady_clock;

  /// One end of the connection to `rank`: the address at which this process listens for that rank
  /// (`is_mine`), or at which that rank listens for this process.
  struct Endpoint {
    sockaddr_storage address{};
    std::size_t rank = 0;
    bool is_mine = false;
  };

  GlooLinks() = default;
  /// Finds the sockets of these endpoints and enables keepalive on them.
  LOCKSTEP_DECL GlooLinks(const std::vector<Endpoint>& places, std::chrono::milliseconds limit);

  /// The number of watched connections.
  std::size_t size() const { return links_.size(); }
  /// How long a connection may be stuck before it counts as dead.
  std::chrono::milliseconds limit() const { return limit_; }

  /// Call this several times a second. \return the rank at the other end of a dead connection.
  LOCKSTEP_DECL std::optional<std::size_t> find_dead(Clock::time_point now);

 private:
  struct Link {
    std::size_t rank = 0;
    int descriptor = -1;
    sockaddr_storage here{}, there{};
    TcpHealth health{};
  };

  LOCKSTEP_DECL static std::optional<sockaddr_storage> address_of(int descriptor,
                                                                  decltype(getsockname)* name_of);
  /// Whether the descriptor still is this socket: Gloo may have closed it, and the program may have
  /// opened another file that got the same number.
  LOCKSTEP_DECL static bool is_same_socket(const Link& link);
  std::chrono::milliseconds limit_{0};
  std::vector<Link> links_;
  Clock::time_point last_{};
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/gloo_links.ipp"
#endif
