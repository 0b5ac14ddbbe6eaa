#pragma once

#include "lockstep/cluster/resolved_cluster.hpp"

#include "lockstep/core/text.hpp"

namespace lockstep {

std::string ResolvedCluster::description() const {
  if (cluster) return cluster->json();
  return text({"{\"chief\":\"", chief ? to_string(*chief) : std::string(),
               "\",\"world_size\":", world_size, "}"});
}

std::string ResolvedCluster::name(std::size_t which) const {
  if (cluster)
    return text({"rank ", which, " (", to_string(cluster->task(which)), ", ",
                 to_string(cluster->address(which)), ")"});
  if (which == 0 && chief) return text({"rank 0 (", to_string(*chief), ")"});
  return text({"rank ", which});
}

}  // namespace lockstep
