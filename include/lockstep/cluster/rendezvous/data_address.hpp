/// \file
/// Where the data connections of a job end. Invariant: all addresses of a job have one family, and
/// a loopback address is published only if all members are on one machine.
#pragma once

#include <asio/ip/address.hpp>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/resolved_cluster.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

LOCKSTEP_COLD_DECL std::string_view address_family_name(const asio::ip::address& address);

/// \throws ClusterError if LOCKSTEP_DATA_ADDRESS is not an address of this machine.
LOCKSTEP_COLD_DECL void check_data_address(const ResolvedCluster& cluster);

/// A member, as the chief sees it at the start.
struct DataPlace {
  std::string given{};            ///< its LOCKSTEP_DATA_ADDRESS; empty: none
  asio::ip::address chief_end{};  ///< of its connection to the chief
  asio::ip::address member_end{};
};

/// The address of each rank; empty: the member's own end of its connection to the chief.
/// `members[0]` has only what is given.
///
/// \code
///   rank 1, same machine   127.0.0.1 --- 127.0.1.1  chief    -> 10.0.0.1
///   rank 2, another one     10.0.0.2 --- 10.0.0.1   chief    -> its own end
///   chief                                                    -> 10.0.0.1
/// \endcode
LOCKSTEP_COLD_DECL std::vector<std::string> data_addresses(const std::vector<DataPlace>& members);

/// Two ranks that cannot reach each other since only one has a loopback address; nothing if there
/// are none.
struct Unreachable {
  std::size_t near = 0, far = 0;
};
LOCKSTEP_COLD_DECL std::optional<Unreachable> find_unreachable(
    const std::vector<DataPlace>& members, const std::vector<std::string>& addresses);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/data_address.ipp"
#endif
