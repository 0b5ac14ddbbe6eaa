#pragma once

#include "lockstep/strategies/planes/store_plane.hpp"

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/collectives/store_group.hpp"
#include "lockstep/strategies/planes/tcp_plane.hpp"

namespace lockstep {

namespace detail {

bool devices_exchange(std::span<const WorkerPlace> places, SumOrder order) {
  if (order == SumOrder::tree) return false;
  std::set<std::string> seen;
  for (const WorkerPlace& place : places) {
    const std::vector<std::string> names = place.device_names();
    if (!place.devices_connect || names.empty()) return false;
    for (std::size_t i = 0; i < place.replicas; ++i)
      if (!seen.insert(names[place.device(i)]).second) return false;
  }
  return true;
}

}  // namespace detail

JobGroups StorePlane::connect(const JobLinks& links) {
  if (!detail::devices_exchange(links.places, links.order)) return Tcp::connect(links);
  Rendezvous& job = links.rendezvous();
  return {StoreGroup(job, links.key("layers"), links.layers()),
          StoreGroup(job, links.key("gradients"), links.gradients())};
}

}  // namespace lockstep
