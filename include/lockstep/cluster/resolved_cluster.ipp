#pragma once

#include "lockstep/cluster/resolved_cluster.hpp"

#include "lockstep/core/fmt_core.hpp"

namespace lockstep {

std::string ResolvedCluster::description() const {
  if (cluster) return cluster->json();
  return fmt::format("{{\"chief\":\"{}\",\"world_size\":{}}}",
                     chief ? to_string(*chief) : std::string(), world_size);
}

std::string ResolvedCluster::name(std::size_t which) const {
  if (cluster)
    return fmt::format("rank {} ({}, {})", which, to_string(cluster->task(which)),
                       to_string(cluster->address(which)));
  if (which == 0 && chief) return fmt::format("rank 0 ({})", to_string(*chief));
  return fmt::format("rank {}", which);
}

}  // namespace lockstep
