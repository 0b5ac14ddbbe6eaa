#pragma once

#include "lockstep/collectives/gloo_links.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <utility>

#include "lockstep/collectives/gloo_exec.hpp"

namespace lockstep::detail {

GlooLinks::GlooLinks(const std::vector<Endpoint>& places, std::chrono::milliseconds limit)
    : limit_(limit) {
  for_each_descriptor([&](int descriptor) {
    const auto here = address_of(descriptor, getsockname),
               there = address_of(descriptor, getpeername);
    if (!here || !there) return;
    for (const Endpoint& place : places)
      if (same_address(place.is_mine ? *here : *there, place.address)) {
        links_.push_back({place.rank, descriptor, *here, *there, std::nullopt});
        keep_alive(descriptor);
      }
  });
}

std::optional<std::size_t> GlooLinks::find_dead(Clock::time_point now) {
  const bool ran = now - std::exchange(last_, now) < std::chrono::seconds(1);
  for (Link& link : links_) {
    tcp_info info{};
    socklen_t length = sizeof info;
    const bool stuck = getsockopt(link.descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
                       info.tcpi_state == TCP_ESTABLISHED &&
                       (info.tcpi_retransmits > 0 || info.tcpi_probes > 0);
    if (!stuck) {
      link.stuck_since.reset();
      continue;
    }
    // The kernel's clock has a resolution of up to 10 ms.
    const std::chrono::milliseconds silent(info.tcpi_last_ack_recv + 10);
    if (!ran || !link.stuck_since || silent < now - *link.stuck_since)
      link.stuck_since = now;
    else if (now - *link.stuck_since >= limit_ && is_same_socket(link))
      return link.rank;
  }
  return std::nullopt;
}

std::optional<sockaddr_storage> GlooLinks::address_of(int descriptor,
                                                      decltype(getsockname)* name_of) {
  sockaddr_storage place{};
  socklen_t length = sizeof place;
  if (name_of(descriptor, reinterpret_cast<sockaddr*>(&place), &length) != 0) return std::nullopt;
  return place;
}

bool GlooLinks::is_same_socket(const Link& link) {
  const auto here = address_of(link.descriptor, getsockname),
             there = address_of(link.descriptor, getpeername);
  return here && there && same_address(*here, link.here) && same_address(*there, link.there);
}

void GlooLinks::keep_alive(int descriptor) const {
  const auto set = [descriptor](int level, int name, int value) {
    (void)setsockopt(descriptor, level, name, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
  const int seconds = static_cast<int>(limit_ / std::chrono::seconds(1));
  const int interval = seconds / 100 + 1;
  set(IPPROTO_TCP, TCP_KEEPINTVL, interval);
  set(IPPROTO_TCP, TCP_KEEPCNT, seconds / interval + 3);
}

}  // namespace lockstep::detail
