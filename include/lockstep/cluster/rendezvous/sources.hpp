/// \file
/// Whose connections a chief without a secret takes: those from the hosts of the cluster's
/// description. Invariants: with a secret, behind another address, or without a list of hosts, all
/// may come; nobody waits for the resolver.
#pragma once

#include <algorithm>
#include <asio/ip/address.hpp>
#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/cluster/rendezvous/lookup.hpp"
#include "lockstep/cluster/resolved_cluster.hpp"

namespace lockstep::detail {

class Sources {
 public:
  Sources(const ResolvedCluster& cluster, bool secret) {
    if (secret || cluster.bind || !cluster.cluster || cluster.world_size < 2) return;
    for (std::size_t r = 0; r < cluster.world_size; ++r) {
      const HostPort& address = cluster.cluster->address(r);
      const auto same = [&](const Host& host) { return host.address.host == address.host; };
      if (std::none_of(hosts_.begin(), hosts_.end(), same)) hosts_.push_back({address});
    }
  }

  /// False for a stranger, and as long as a host's name has not been looked up.
  bool welcome(const asio::ip::address& source) {
    const bool known = hosts_.empty() ||
                       std::any_of(hosts_.begin(), hosts_.end(),
                                   [&](const Host& host) { return contains(host, plain(source)); });
    stranger_ = stranger_ || !known;
    return known;
  }

  /// From time to time: asks again for hosts without an address, and for all if an unknown source
  /// has come, since a host that was started anew may have another address.
  void tick(Clock::time_point now) {
    bool asked = false;
    for (Host& host : hosts_) {
      const bool wanted = stranger_ || answered_without(host);
      if (host.lookup && !(wanted && now - host.asked >= std::chrono::seconds(5))) continue;
      host.lookup.emplace(host.address);
      host.asked = now;
      asked = true;
    }
    if (asked) stranger_ = false;
  }

 private:
  struct Host {
    HostPort address;
    std::optional<Lookup> lookup{};
    Clock::time_point asked{};
  };

  static bool answered_without(const Host& host) {
    const auto found = host.lookup ? host.lookup->result() : std::nullopt;
    return found && found->endpoints.empty();
  }

  /// A machine reaches itself at every address of 127.0.0.0/8.
  static bool contains(const Host& host, const asio::ip::address& source) {
    if (source.is_loopback() && is_loopback(host.address.host)) return true;
    const auto found = host.lookup ? host.lookup->result() : std::nullopt;
    return found && std::any_of(found->endpoints.begin(), found->endpoints.end(),
                                [&](const asio::ip::tcp::endpoint& endpoint) {
                                  return plain(endpoint.address()) == source;
                                });
  }

  /// IPv4 that is written as IPv6 is IPv4.
  static asio::ip::address plain(const asio::ip::address& address) {
    if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  }

  std::vector<Host> hosts_;
  bool stranger_ = false;
};

}  // namespace lockstep::detail
