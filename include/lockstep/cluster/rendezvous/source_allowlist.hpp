/// \file
/// Whose connections a chief without a secret takes: those from the hosts of the cluster's
/// description. Invariants: with a secret, behind another address, or without a list of hosts, all
/// may come; nobody waits for the resolver.
#pragma once

#include <asio/ip/address.hpp>
#include <optional>
#include <vector>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/cluster/rendezvous/lookup.hpp"
#include "lockstep/cluster/resolved_cluster.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

class SourceAllowlist {
 public:
  LOCKSTEP_COLD_DECL SourceAllowlist(const ResolvedCluster& cluster, bool secret);

  /// False for a stranger, and as long as a host's name has not been looked up.
  LOCKSTEP_COLD_DECL bool allows(const asio::ip::address& source);

  /// From time to time: asks again for hosts without an address, and for all if an unknown source
  /// has come, since a host that was started anew may have another address.
  LOCKSTEP_COLD_DECL void tick(Clock::time_point now);

 private:
  struct Host {
    HostPort address;
    std::optional<Lookup> lookup{};
    Clock::time_point last_query{};
  };

  LOCKSTEP_COLD_DECL static bool answered_without(const Host& host);

  /// A machine reaches itself at every address of 127.0.0.0/8.
  LOCKSTEP_COLD_DECL static bool contains(const Host& host, const asio::ip::address& source);

  /// IPv4 that is written as IPv6 is IPv4.
  LOCKSTEP_COLD_DECL static asio::ip::address plain(const asio::ip::address& address);

  std::vector<Host> hosts_;
  bool stranger_ = false;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/source_allowlist.ipp"
#endif
