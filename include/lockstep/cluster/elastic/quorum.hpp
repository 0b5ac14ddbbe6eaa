/// \file
/// Which machines can decide for a generation. Invariant: any two sets of machines that are quorums
/// of the same generation have a machine in common.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/cluster/elastic/identity.hpp"

namespace lockstep::detail {

/// The machines of a generation, numbered by their lowest rank, so that rank 0 is on machine 0. A
/// machine weighs as much as it has members, dead ones included: their votes are in its folder,
/// where any living member of the generation on that machine reads them.
class Quorum {
 public:
  Quorum() = default;
  /// `machines` are those of the members, by rank.
  [[gnu::cold]] explicit Quorum(const std::vector<MachineId>& machines) {
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

  /// The number of machines.
  std::size_t size() const { return weights_.size(); }
  /// The machine of a member.
  std::size_t machine_of(std::size_t rank) const { return machine_of_[rank]; }

  /// True for more than half of the members, or exactly half with rank 0's machine. `votes` is by
  /// machine.
  [[gnu::cold]] bool reached(const std::vector<bool>& votes) const {
    std::size_t weight = 0;
    for (std::size_t machine = 0; machine < weights_.size(); ++machine)
      if (votes[machine]) weight += weights_[machine];
    const std::size_t all = machine_of_.size();
    return 2 * weight > all || (2 * weight == all && all > 0 && votes[0]);
  }

 private:
  std::vector<std::size_t> machine_of_;  // by rank
  std::vector<std::size_t> weights_;     // by machine
};

}  // namespace lockstep::detail
