/// \file
/// Finds connections of a mesh over which nothing arrives any more, although both processes live.
/// Invariants: a peer that does not read, or a process that is stopped, is not taken for a dead
/// connection; time counts only while the caller ran.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/collectives/gloo_exec.hpp"

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
  struct Place {
    sockaddr_storage address{};
    std::size_t rank = 0;
    bool is_mine = false;
  };

  GlooLinks() = default;
  /// Looks for the sockets, and turns on their keepalive.
  GlooLinks(const std::vector<Place>& places, std::chrono::milliseconds limit) : limit_(limit) {
    for_each_file([&](int file) {
      const auto here = end_of(file, getsockname), there = end_of(file, getpeername);
      if (!here || !there) return;
      for (const Place& place : places)
        if (is_same_place(place.is_mine ? *here : *there, place.address)) {
          links_.push_back({place.rank, file, *here, *there, std::nullopt});
          keep_alive(file);
        }
    });
  }

  /// How many connections are watched.
  std::size_t size() const { return links_.size(); }
  std::chrono::milliseconds limit() const { return limit_; }

  /// To be called some times a second. \return the rank at the other end of a dead connection.
  std::optional<std::size_t> find_dead(Clock::time_point now) {
    const bool ran = now - std::exchange(last_, now) < std::chrono::seconds(1);
    for (Link& link : links_) {
      tcp_info info{};
      socklen_t length = sizeof info;
      const bool stuck = getsockopt(link.file, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
                         info.tcpi_state == TCP_ESTABLISHED &&
                         (info.tcpi_retransmits > 0 || info.tcpi_probes > 0);
      if (!stuck) {
        link.since.reset();
        continue;
      }
      // The kernel counts in ticks of up to 10 ms.
      const std::chrono::milliseconds silent(info.tcpi_last_ack_recv + 10);
      if (!ran || !link.since || silent < now - *link.since)
        link.since = now;
      else if (now - *link.since >= limit_ && is_still_there(link))
        return link.rank;
    }
    return std::nullopt;
  }

 private:
  struct Link {
    std::size_t rank = 0;
    int file = -1;
    sockaddr_storage here{}, there{};
    std::optional<Clock::time_point> since{};  ///< stuck
  };

  static std::optional<sockaddr_storage> end_of(int file, decltype(getsockname)* name_of) {
    sockaddr_storage place{};
    socklen_t length = sizeof place;
    if (name_of(file, reinterpret_cast<sockaddr*>(&place), &length) != 0) return std::nullopt;
    return place;
  }
  /// Gloo may have closed it, and the program opened another file of this number.
  static bool is_still_there(const Link& link) {
    const auto here = end_of(link.file, getsockname), there = end_of(link.file, getpeername);
    return here && there && is_same_place(*here, link.here) && is_same_place(*there, link.there);
  }
  /// A probe after a second, then up to 100 in the limit. The kernel gives the connection up later
  /// than `find_dead` does, if nobody calls that. It refuses more than 127 probes.
  void keep_alive(int file) const {
    const auto set = [file](int level, int name, int value) {
      (void)setsockopt(file, level, name, &value, sizeof value);
    };
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
    const int seconds = static_cast<int>(limit_ / std::chrono::seconds(1));
    const int interval = seconds / 100 + 1;
    set(IPPROTO_TCP, TCP_KEEPINTVL, interval);
    set(IPPROTO_TCP, TCP_KEEPCNT, seconds / interval + 3);
  }

  std::chrono::milliseconds limit_{0};
  std::vector<Link> links_;
  Clock::time_point last_{};
};

}  // namespace lockstep::detail
