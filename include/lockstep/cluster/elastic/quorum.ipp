#pragma once

#include "lockstep/cluster/elastic/quorum.hpp"

#include <algorithm>

namespace lockstep::detail {

Quorum::Quorum(const std::vector<MachineId>& machines) {
  std::vector<MachineId> known;
  for (const MachineId& machine : machines) {
    const auto found = std::find(known.begin(), known.end(), machine);
    machine_of_.push_back(static_cast<std::size_t>(found - known.begin()));
    if (found == known.end()) {
      known.push_back(machine);
      weights_.push_back(0);
    }
    ++weights_[machine_of_.back()];
  }
}

bool Quorum::reached(const std::vector<bool>& votes) const {
  std::size_t weight = 0;
  for (std::size_t machine = 0; machine < weights_.size(); ++machine)
    if (votes[machine]) weight += weights_[machine];
  const std::size_t all = machine_of_.size();
  return 2 * weight > all || (2 * weight == all && all > 0 && votes[0]);
}

}  // namespace lockstep::detail
