/// \file
/// Where the chief listens. Invariant: at the address of its description or of LOCKSTEP_BIND, and
/// at no other.
#pragma once

#include <optional>
#include <string>

#include "lockstep/cluster/host_port.hpp"
#include "lockstep/cluster/rendezvous/control.hpp"
#include "lockstep/cluster/rendezvous/listener.hpp"
#include "lockstep/cluster/rendezvous/lookup.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

LOCKSTEP_COLD_DECL HostPort listening_address(const ResolvedCluster& cluster);

/// What came of an attempt to listen.
struct ListenFault {
  std::string sentence;
  bool may_pass = false;  ///< another answer of DNS may help
};

LOCKSTEP_COLD_DECL std::string chief_place(const JoinSetup& setup);

/// The end of a sentence on an address that is not one of this machine.
inline constexpr const char* bind_remedy =
    "; the chief listens at an address of its own machine: if others reach it at another one (NAT, "
    "container, Kubernetes), set LOCKSTEP_BIND to its own address, or to 0.0.0.0";

/// Listens at all addresses that `found` has and this machine too; nothing if at least one is.
LOCKSTEP_COLD_DECL std::optional<ListenFault> listen_at(Listener& listener,
                                                        const LookupResult& found,
                                                        const JoinSetup& setup);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/chief_address.ipp"
#endif
