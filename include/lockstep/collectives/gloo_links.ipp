#pragma once

#include "lockstep/collectives/gloo_links.hpp"

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
        links_.push_back({place.rank, descriptor, *here, *there, {}});
        TcpHealth::keep_alive(descriptor, limit_);
      }
  });
}

std::optional<std::size_t> GlooLinks::find_dead(Clock::time_point now) {
  const bool ran = now - std::exchange(last_, now) < std::chrono::seconds(1);
  for (Link& link : links_)
    if (link.health.is_dead(link.descriptor, now, ran, limit_) && is_same_socket(link))
      return link.rank;
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

}  // namespace lockstep::detail
