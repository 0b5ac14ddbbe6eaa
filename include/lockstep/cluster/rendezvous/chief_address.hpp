/// \file
/// The address on which the chief listens. Invariant: that of the cluster description or of
/// LOCKSTEP_BIND, and without a secret no other.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/description/host_port.hpp"
#include "lockstep/cluster/network/listener.hpp"
#include "lockstep/cluster/network/lookup.hpp"
#include "lockstep/cluster/rendezvous/control.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep::detail {

/// LOCKSTEP_BIND, with the chief's port unless it names one; else the chief's address.
LOCKSTEP_COLD_DECL HostPort listening_address(const ResolvedCluster& cluster);

/// Why the chief cannot listen.
struct ListenFault {
  std::string sentence;
  bool may_pass = false;     ///< a later DNS answer may help
  bool port_in_use = false;  ///< another port may help
};

/// The chief cannot listen. In an elastic job it is another process at the next attempt, or has
/// another port.
class ListenError : public ClusterError {
 public:
  using ClusterError::ClusterError;
};

/// The source of that address, for messages.
LOCKSTEP_COLD_DECL std::string chief_place(const JoinSetup& setup);

/// The remedy for an address that does not belong to this machine.
inline constexpr const char* bind_remedy =
    "; the chief listens at an address of this machine: if others reach it at another one (NAT, "
    "container, Kubernetes), set LOCKSTEP_BIND to its own address, or to 0.0.0.0";

/// The addresses of `found` at which a process of the described host listens. If they are loopback
/// addresses although others have to reach that host by its name, as with Debian's 127.0.1.1, the
/// result has all addresses of this machine instead, provided that the job has a secret. Logs a
/// warning in both cases. `what` is "the chief's host".
LOCKSTEP_COLD_DECL std::vector<tcp::endpoint> listening_endpoints(
    const LookupResult& found, const ResolvedCluster& cluster, const std::string& host,
    std::string_view what, bool is_secured,
    const std::function<void(LogLevel, std::string_view)>& log);

/// Listens on those addresses of `found` that belong to this machine, at the first of the job's ports
/// that is free. Nullopt if at least one works.
LOCKSTEP_COLD_DECL std::optional<ListenFault> listen_at(Listener& listener,
                                                        const LookupResult& found,
                                                        const JoinSetup& setup, bool is_secured);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/chief_address.ipp"
#endif
