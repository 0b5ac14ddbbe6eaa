/// \file
/// The addresses on which ranks accept data connections. Invariants: all of a job's addresses
/// belong to one family; a loopback address is published only if all members run on one machine.
#pragma once

#include <asio/ip/address.hpp>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// "IPv4" or "IPv6".
LOCKSTEP_COLD_DECL std::string_view address_family_name(const asio::ip::address& address);

/// Turns LOCKSTEP_INTERFACE into `data_address`. \throws ClusterError if no address of this machine
/// matches, with the interfaces that exist; or if LOCKSTEP_DATA_ADDRESS is not an address of this
/// machine, tested by binding a socket. With LOCKSTEP_BIND=0.0.0.0 or :: it may be that of a host
/// which passes its ports on to this machine.
LOCKSTEP_COLD_DECL void choose_data_address(ResolvedCluster& cluster);

/// The addresses of the interfaces after the first one of a list. \throws ClusterError if one has
/// none, or two have the same.
LOCKSTEP_COLD_DECL std::vector<std::string> more_data_addresses(const ResolvedCluster& cluster);

/// A member as seen by the chief at the start.
struct DataPlace {
  /// LOCKSTEP_DATA_ADDRESS or _INTERFACE, else its own end of the connection to the chief; empty: a
  /// loopback address.
  std::string given{};
  // Both ends as the chief sees them: a proxy between the two hides the member's place.
  asio::ip::address chief_end{}, member_end{};
};

/// The data address of each rank; empty: the member's own end of its connection to the chief. In
/// `members[0]` only `given` is used.
/// \code
///   rank 1, same machine   127.0.0.1 --------- 127.0.1.1   chief    -> 10.0.0.1
///   rank 2, another one     10.0.0.2 --------- 10.0.0.1    chief    -> 10.0.0.2
///   rank 3, with a sidecar  10.0.0.3 - proxy - 127.0.0.1   chief    -> 10.0.0.3
///   chief                                                           -> 10.0.0.1
/// \endcode
LOCKSTEP_COLD_DECL std::vector<std::string> data_addresses(const std::vector<DataPlace>& members);

/// Two ranks that would use one address, although the second one connects from another: NAT lies
/// between them and the chief.
struct SharedAddress {
  std::size_t first = 0, second = 0;
};
/// The first such pair.
LOCKSTEP_COLD_DECL std::optional<SharedAddress> find_shared_address(
    const std::vector<DataPlace>& members, const std::vector<std::string>& addresses);

/// Two ranks of which only one has a loopback address, so that they cannot reach each other.
struct Unreachable {
  std::size_t near = 0, far = 0;
};
/// The first such pair; nullopt if all ranks can reach each other.
LOCKSTEP_COLD_DECL std::optional<Unreachable> find_unreachable(
    const std::vector<DataPlace>& members, const std::vector<std::string>& addresses);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/network/data_address.ipp"
#endif
