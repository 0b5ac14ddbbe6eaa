#pragma once

#include "lockstep/cluster/network/interfaces.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <asio/ip/network_v4.hpp>
#include <asio/ip/network_v6.hpp>
#include <cstring>
#include <memory>

namespace lockstep::detail {

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
  std::vector<InterfaceAddress> result;
  for (const ifaddrs* i = first; i; i = i->ifa_next) {
    if (!i->ifa_addr || (i->ifa_flags & IFF_UP) == 0) continue;
    if (i->ifa_addr->sa_family == AF_INET) {
      sockaddr_in place{};
      std::memcpy(&place, i->ifa_addr, sizeof place);
      result.push_back({i->ifa_name, asio::ip::address_v4(ntohl(place.sin_addr.s_addr))});
    } else if (i->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 place{};
      std::memcpy(&place, i->ifa_addr, sizeof place);
      asio::ip::address_v6::bytes_type bytes{};
      std::memcpy(bytes.data(), &place.sin6_addr, bytes.size());
      const asio::ip::address_v6 address(bytes);
      if (!address.is_link_local()) result.push_back({i->ifa_name, address});
    }
  }
  return result;
}

/// True if `address` belongs to `network`, such as 10.0.0.0/8.
inline bool contains_address(const std::string& network, const asio::ip::address& address) {
  asio::error_code wrong;
  if (address.is_v4()) {
    const auto range = asio::ip::make_network_v4(network, wrong);
    return !wrong && asio::ip::network_v4(address.to_v4(), range.prefix_length()).canonical() ==
                         range.canonical();
  }
  const auto range = asio::ip::make_network_v6(network, wrong);
  return !wrong && asio::ip::network_v6(address.to_v6(), range.prefix_length()).canonical() ==
                       range.canonical();
}

std::optional<asio::ip::address> select_address(std::string_view selector,
                                                const std::vector<InterfaceAddress>& addresses,
                                                bool prefers_ipv6) {
  const std::string text(selector);
  const bool is_network = text.find('/') != std::string::npos;
  std::optional<asio::ip::address> other;  // of the family that is not preferred
  for (const auto& [interface, address] : addresses) {
    if (is_network ? !contains_address(text, address) : interface != text) continue;
    if (address.is_v6() == prefers_ipv6) return address;
    if (!other) other = address;
  }
  return other;
}

std::string list_interfaces(const std::vector<InterfaceAddress>& addresses) {
  std::string result;
  std::vector<std::string> listed;
  for (const auto& [interface, ignored] : addresses) {
    bool is_known = false;
    for (const std::string& name : listed) is_known = is_known || name == interface;
    if (is_known) continue;
    listed.push_back(interface);
    std::string texts;
    for (const auto& [name, address] : addresses)
      if (name == interface) texts += (texts.empty() ? "" : ", ") + address.to_string();
    result += (result.empty() ? "" : ", ") + interface + " (" + texts + ")";
  }
  return result.empty() ? "none" : result;
}

}  // namespace lockstep::detail
