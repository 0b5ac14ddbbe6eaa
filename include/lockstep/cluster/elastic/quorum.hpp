/// \file
/// Which machines can decide for a generation. Invariant: any two sets of machines that are quorums
/// of the same generation have a machine in common.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/cluster/elastic/identity.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// The machines of a generation, numbered by their lowest rank, so that rank 0 is on machine 0. A
/// machine weighs as much as it has members, dead ones included: their votes are in its folder,
/// where any living member of the generation on that machine reads them.
class Quorum {
 public:
  Quorum() = default;
  /// `machines` are those of the members, by rank.
  LOCKSTEP_COLD_DECL explicit Quorum(const std::vector<MachineId>& machines);

  /// The number of machines.
  std::size_t size() const { return weights_.size(); }
  /// The machine of a member.
  std::size_t machine_of(std::size_t rank) const { return machine_of_[rank]; }

  /// True for more than half of the members, or exactly half with rank 0's machine. `votes` is by
  /// machine.
  LOCKSTEP_COLD_DECL bool reached(const std::vector<bool>& votes) const;

 private:
  std::vector<std::size_t> machine_of_;  // by rank
  std::vector<std::size_t> weights_;     // by machine
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/elastic/quorum.ipp"
#endif
