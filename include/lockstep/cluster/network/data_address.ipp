#pragma once

#include "lockstep/cluster/network/data_address.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <asio/ip/tcp.hpp>
#include <cerrno>
#include <system_error>

#include "lockstep/cluster/network/interfaces.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::detail {

std::string_view address_family_name(const asio::ip::address& address) {
  return address.is_v4() ? "IPv4" : "IPv6";
}

/// \throws ClusterError
inline std::string address_of_interface(const ResolvedCluster& cluster, const std::string& name) {
  const auto addresses = interface_addresses();
  // The ranks must agree on a family, and all know the chief's address.
  const bool prefers_ipv6 = cluster.chief && ipv6(cluster.chief->host).has_value();
  const auto address = select_address(name, addresses, prefers_ipv6);
  if (!address)
    throw ClusterError("LOCKSTEP_INTERFACE={} matches no address of this machine; it has {}", name,
                       list_interfaces(addresses));
  return address->to_string();
}

std::vector<std::string> more_data_addresses(const ResolvedCluster& cluster) {
  std::vector<std::string> found;
  for (const std::string& name : cluster.more_interfaces) {
    std::string address = address_of_interface(cluster, name);
    if (address == address_of_interface(cluster, *cluster.data_interface) ||
        std::find(found.begin(), found.end(), address) != found.end())
      throw ClusterError(
          "LOCKSTEP_INTERFACE: {} selects {}, as an entry before it does; write each interface once",
          name, address);
    found.push_back(std::move(address));
  }
  return found;
}

inline bool is_any(const std::string& host) {
  asio::error_code wrong;
  return asio::ip::make_address(host, wrong).is_unspecified() && !wrong;
}

void choose_data_address(ResolvedCluster& cluster) {
  if (cluster.data_interface)
    cluster.data_address = address_of_interface(cluster, *cluster.data_interface);
  if (!cluster.data_address) return;
  const asio::ip::tcp::endpoint place(asio::ip::make_address(*cluster.data_address), 0);
  const int probe = ::socket(place.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool is_ours =
      probe >= 0 && ::bind(probe, place.data(), static_cast<socklen_t>(place.size())) == 0;
  const int error = errno;
  if (probe >= 0) ::close(probe);
  // The process listens at all addresses, and a host's published ports lead there.
  const bool is_of_host = error == EADDRNOTAVAIL && cluster.bind && is_any(cluster.bind->host);
  if (!is_ours && !is_of_host)
    throw ClusterError(
        "LOCKSTEP_DATA_ADDRESS={} cannot be bound ({}); write an address that this machine has (ip "
        "address), or set LOCKSTEP_BIND=0.0.0.0 too, if that is the address of a host which passes "
        "connections on to this machine (published ports of a container)",
        *cluster.data_address, std::generic_category().message(error));
}

/// The address of this machine from which packets go to `peer`; empty if there is no route.
inline std::string source_address(const asio::ip::address& peer) {
  asio::ip::tcp::endpoint place(peer, 9);  // any port: no packet is sent
  const int probe = ::socket(place.protocol().family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  auto size = static_cast<socklen_t>(place.capacity());
  const bool found = probe >= 0 &&
                     ::connect(probe, place.data(), static_cast<socklen_t>(place.size())) == 0 &&
                     ::getsockname(probe, place.data(), &size) == 0;
  if (probe >= 0) ::close(probe);
  return found && !place.address().is_loopback() ? place.address().to_string() : std::string();
}

/// Unspecified if the member did not send it.
inline asio::ip::address own_address(const DataPlace& member) {
  asio::error_code wrong;
  return asio::ip::make_address(member.given, wrong);
}

std::vector<std::string> data_addresses(const std::vector<DataPlace>& members) {
  std::vector<std::string> result;
  std::string far;  // the chief's address as seen from another machine
  for (std::size_t r = 1; r < members.size() && far.empty(); ++r)
    if (!members[r].chief_end.is_loopback() && !members[r].chief_end.is_unspecified())
      far = members[r].chief_end.to_string();
  // A proxy on the chief's machine connects from there, wherever the member is.
  for (std::size_t r = 1; r < members.size() && far.empty(); ++r)
    if (const auto own = own_address(members[r]); !own.is_unspecified() && !own.is_loopback())
      far = source_address(own);
  const bool one_machine = far.empty();
  for (std::size_t r = 0; r < members.size(); ++r) {
    const DataPlace& member = members[r];
    if (!member.given.empty())
      result.push_back(member.given);
    else if (r == 0)
      result.push_back(!one_machine         ? far
                       : members.size() > 1 ? members[1].chief_end.to_string()
                                            : "127.0.0.1");
    else if (!one_machine && member.chief_end.is_loopback())
      result.push_back(result[0]);  // a member on the chief's machine
    else
      result.push_back("");
  }
  return result;
}

std::optional<SharedAddress> find_shared_address(const std::vector<DataPlace>& members,
                                                 const std::vector<std::string>& addresses) {
  for (std::size_t r = 1; r < members.size(); ++r) {
    const auto& from = members[r].member_end;
    if (addresses[r].empty() || from.is_loopback() || from.to_string() == addresses[r]) continue;
    for (std::size_t other = 0; other < members.size(); ++other)
      if (other != r && addresses[other] == addresses[r]) return SharedAddress{other, r};
  }
  return std::nullopt;
}

std::optional<Unreachable> find_unreachable(const std::vector<DataPlace>& members,
                                            const std::vector<std::string>& addresses) {
  std::optional<std::size_t> near, far;
  for (std::size_t r = 0; r < members.size(); ++r) {
    const auto address =
        addresses[r].empty() ? members[r].member_end : asio::ip::make_address(addresses[r]);
    if (address.is_unspecified()) continue;  // just closed: reported elsewhere
    auto& kind = address.is_loopback() ? near : far;
    if (!kind) kind = r;
  }
  if (near && far) return Unreachable{*near, *far};
  return std::nullopt;
}

}  // namespace lockstep::detail
