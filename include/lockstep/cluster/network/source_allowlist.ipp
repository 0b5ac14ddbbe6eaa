#pragma once

#include "lockstep/cluster/network/source_allowlist.hpp"

#include <algorithm>
#include <cstddef>

namespace lockstep::detail {

SourceAllowlist::SourceAllowlist(const ResolvedCluster& cluster, bool secret)
    // With a bind address (NAT, containers) sources have addresses that the description cannot name.
    : filters_(!secret && !cluster.bind), resolves_(filters_) {
  if (!cluster.cluster || cluster.world_size < 2) return;
  for (std::size_t r = 0; r < cluster.world_size; ++r) {
    const HostPort& address = cluster.cluster->address(r);
    const auto same = [&](const Host& host) { return host.address.host == address.host; };
    if (std::none_of(hosts_.begin(), hosts_.end(), same)) hosts_.push_back({address});
  }
}

bool SourceAllowlist::allows(const asio::ip::address& source) {
  return !filters_ || hosts_.empty() || describes(source);
}

bool SourceAllowlist::describes(const asio::ip::address& source) {
  const bool known = std::any_of(hosts_.begin(), hosts_.end(),
                                 [&](const Host& host) { return contains(host, plain(source)); });
  resolves_ = true;
  stranger_ = stranger_ || !known;
  return known;
}

void SourceAllowlist::tick(Clock::time_point now) {
  if (!resolves_) return;
  bool asked = false;
  for (Host& host : hosts_) {
    const bool wanted = stranger_ || answered_without(host);
    if (host.lookup && !(wanted && now - host.last_query >= std::chrono::seconds(5))) continue;
    host.lookup.emplace(host.address);
    host.last_query = now;
    asked = true;
  }
  if (asked) stranger_ = false;
}

bool SourceAllowlist::answered_without(const Host& host) {
  const auto found = host.lookup ? host.lookup->result() : std::nullopt;
  return found && found->endpoints.empty();
}

bool SourceAllowlist::contains(const Host& host, const asio::ip::address& source) {
  if (source.is_loopback() && is_loopback(host.address.host)) return true;
  const auto found = host.lookup ? host.lookup->result() : std::nullopt;
  return found && std::any_of(found->endpoints.begin(), found->endpoints.end(),
                              [&](const asio::ip::tcp::endpoint& endpoint) {
                                return plain(endpoint.address()) == source;
                              });
}

asio::ip::address SourceAllowlist::plain(const asio::ip::address& address) {
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
  return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
}

}  // namespace lockstep::detail
