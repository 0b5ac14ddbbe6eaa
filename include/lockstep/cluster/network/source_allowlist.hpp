/// \file
/// The sources from which a chief without a secret accepts connections, and which any chief prefers:
/// the hosts of the cluster description. Invariants: every source is allowed if there is a secret, a
/// bind address, or no list of hosts; no call waits for the resolver.
#pragma once

#include <asio/ip/address.hpp>
#include <optional>
#include <vector>

#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/network/clock.hpp"
#include "lockstep/cluster/network/lookup.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Compares the address of a connection with the resolved hosts of the cluster.
class SourceAllowlist {
 public:
  /// `secret`: the job has one, so a handshake proves membership and every source is allowed.
  LOCKSTEP_COLD_DECL SourceAllowlist(const ResolvedCluster& cluster, bool secret);

  /// False for an unknown source, and while its host has not been resolved.
  LOCKSTEP_COLD_DECL bool allows(const asio::ip::address& source);
  /// True if `source` belongs to a host of the description. After the first question the hosts are
  /// resolved, also those of a job with a secret.
  LOCKSTEP_COLD_DECL bool describes(const asio::ip::address& source);

  /// Called every heartbeat. Resolves hosts that have no address, and all hosts after an unknown
  /// source, because a restarted host may have a new address. At most once in 5 s for each host.
  LOCKSTEP_COLD_DECL void tick(Clock::time_point now);

 private:
  /// A host of the cluster description and its last query.
  struct Host {
    HostPort address;
    std::optional<Lookup> lookup{};
    Clock::time_point last_query{};
  };

  /// True if the resolver found no address.
  LOCKSTEP_COLD_DECL static bool answered_without(const Host& host);

  /// True if `source` is an address of `host`. A machine reaches itself at any address of
  /// 127.0.0.0/8.
  LOCKSTEP_COLD_DECL static bool contains(const Host& host, const asio::ip::address& source);

  /// IPv4-mapped IPv6 (::ffff:10.0.0.1) as IPv4.
  LOCKSTEP_COLD_DECL static asio::ip::address plain(const asio::ip::address& address);

  std::vector<Host> hosts_;
  bool filters_, resolves_, stranger_ = false;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/network/source_allowlist.ipp"
#endif
