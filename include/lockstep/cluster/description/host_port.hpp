/// \file
/// The address of a task. Invariants: the host is a DNS name, an IPv4 address, or an IPv6 address
/// without brackets, in canonical spelling (lower case, IPv6 as inet_ntop writes it), so that equal
/// hosts are equal text; the port is not 0. Nothing is resolved here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"

namespace lockstep {

/// A validated host and port.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
  bool operator==(const HostPort&) const = default;
};

/// "10.0.0.1:12345", "[::1]:12345": the input of `parse_host_port`.
LOCKSTEP_COLD_DECL std::string to_string(const HostPort& address);

/// True if `host` is reachable only from its own machine: localhost, *.localhost, 127.0.0.0/8, ::1.
LOCKSTEP_COLD_DECL bool is_loopback(std::string_view host);

namespace detail {

/// The longest DNS name, in characters.
inline constexpr std::size_t max_host_length = 253;

/// The canonical spelling of an IPv6 address, with its zone ("%eth0") if it has one; nullopt if
/// `text` is not an IPv6 address.
LOCKSTEP_COLD_DECL std::optional<std::string> ipv6(std::string_view text);

/// A host without a port, in canonical spelling. `subject` begins the message. \throws ClusterError
LOCKSTEP_COLD_DECL std::string checked_host(std::string_view host, const std::string& subject);

/// A port from 1 to 65535. `subject` begins the message. \throws ClusterError
LOCKSTEP_COLD_DECL std::uint16_t checked_port(std::string_view port, const std::string& subject);

}  // namespace detail

/// Parses "host:port", "10.0.0.1:port" or "[fd00::1]:port". `where` names the entry in a message.
/// \code
///   lockstep::parse_host_port("10.0.0.1:12345", "worker[0]");
/// \endcode
/// \throws ClusterError with the spelling that was probably meant.
LOCKSTEP_COLD_DECL HostPort parse_host_port(std::string_view entry, std::string_view where);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/description/host_port.ipp"
#endif
