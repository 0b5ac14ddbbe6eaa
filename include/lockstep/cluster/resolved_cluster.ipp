#pragma once

#include "lockstep/cluster/resolved_cluster.hpp"

#include "lockstep/core/format_text.hpp"

namespace lockstep {

namespace detail {

/// Removes the zones of IPv6 addresses, "%eth0" in "[fe80::1%eth0]:80": each machine has its own.
inline std::string without_zones(std::string text) {
  for (auto zone = text.find('%'); zone != std::string::npos; zone = text.find('%', zone))
    text.erase(zone, text.find(']', zone) - zone);
  return text;
}

}  // namespace detail

std::string ResolvedCluster::description() const {
  if (cluster) return detail::without_zones(cluster->json());
  std::string place = chief ? to_string(*chief) : std::string();
  if (chief && !compares_chief_host) place = format_text(":{}", chief->port);
  return format_text("{{\"chief\":\"{}\",\"world_size\":{}}}", detail::without_zones(place),
                     world_size);
}

std::string ResolvedCluster::name(std::size_t which) const {
  if (cluster)
    return format_text("rank {} ({}, {})", which, to_string(cluster->task(which)),
                       to_string(cluster->address(which)));
  if (which == 0 && chief) return format_text("rank 0 ({})", to_string(*chief));
  return format_text("rank {}", which);
}

}  // namespace lockstep
