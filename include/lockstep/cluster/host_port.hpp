/// \file
/// An address that workers connect to. Invariants: the host is a name of DNS, IPv4, or IPv6 without
/// brackets, in one spelling (lower case, IPv6 as inet_ntop writes it); the port is not 0. Nothing
/// is looked up here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"

namespace lockstep {

/// Host and port, as `parse_host_port` checks them.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
  bool operator==(const HostPort&) const = default;
};

/// "10.0.0.1:12345", "[::1]:12345": what `parse_host_port` reads.
LOCKSTEP_COLD_DECL std::string to_string(const HostPort& address);

/// True if only processes of the same machine reach `host`: localhost, 127.0.0.0/8, ::1.
LOCKSTEP_COLD_DECL bool is_loopback(std::string_view host);

namespace detail {

inline constexpr std::size_t max_host_length = 253;

/// The one spelling of an IPv6 address; nothing if `text` is none. "%eth0" behind it stays.
LOCKSTEP_COLD_DECL std::optional<std::string> ipv6(std::string_view text);

/// A host without a port, in its one spelling. `subject` begins the message.
/// \throws ClusterError
LOCKSTEP_COLD_DECL std::string checked_host(std::string_view host, const std::string& subject);

/// \throws ClusterError
LOCKSTEP_COLD_DECL std::uint16_t checked_port(std::string_view port, const std::string& subject);

}  // namespace detail

/// Reads "host:port", "10.0.0.1:port", "[fd00::1]:port". `where` says in a message where the entry
/// stands.
/// \code
///   lockstep::parse_host_port("10.0.0.1:12345", "worker[0]");
/// \endcode
/// \throws ClusterError that says what to write instead.
LOCKSTEP_COLD_DECL HostPort parse_host_port(std::string_view entry, std::string_view where);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/host_port.ipp"
#endif
