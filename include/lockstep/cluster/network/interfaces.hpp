/// \file
/// The network interfaces of this machine, and the choice of one by LOCKSTEP_INTERFACE. Invariant:
/// addresses that need a scope (fe80::/10) and interfaces that are down are never chosen.
#pragma once

#include <asio/ip/address.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// An address of an interface.
struct InterfaceAddress {
  std::string interface{};  ///< "eth1"
  asio::ip::address address{};
};

/// The addresses of all interfaces that are up, in the system's order.
LOCKSTEP_COLD_DECL std::vector<InterfaceAddress> interface_addresses();

/// The first address that `selector` selects: the name of an interface ("eth1") or a network
/// ("10.0.0.0/8", "fd00::/8"). If the interface has both families, `prefers_ipv6` chooses one.
/// Nullopt if none matches.
LOCKSTEP_COLD_DECL std::optional<asio::ip::address> select_address(
    std::string_view selector, const std::vector<InterfaceAddress>& addresses, bool prefers_ipv6);

/// For messages: "lo (127.0.0.1, ::1), eth0 (10.0.0.5)".
LOCKSTEP_COLD_DECL std::string list_interfaces(const std::vector<InterfaceAddress>& addresses);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/network/interfaces.ipp"
#endif
