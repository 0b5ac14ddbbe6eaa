#pragma once

#include "lockstep/collectives/gloo_links.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <utility>

#include "lockstep/collectives/gloo_exec.hpp"

namespace lockstep::detail {

GlooLinks::GlooLinks(const std::vector<Place>& places, std::chrono::milliseconds limit)
    : limit_(limit) {
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

std::optional<std::size_t> GlooLinks::find_dead(Clock::time_point now) {
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

std::optional<sockaddr_storage> GlooLinks::end_of(int file, decltype(getsockname)* name_of) {
  sockaddr_storage place{};
  socklen_t length = sizeof place;
  if (name_of(file, reinterpret_cast<sockaddr*>(&place), &length) != 0) return std::nullopt;
  return place;
}

bool GlooLinks::is_still_there(const Link& link) {
  const auto here = end_of(link.file, getsockname), there = end_of(link.file, getpeername);
  return here && there && is_same_place(*here, link.here) && is_same_place(*there, link.there);
}

void GlooLinks::keep_alive(int file) const {
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

}  // namespace lockstep::detail
