/// \file
/// Which processes of a group run on one machine, for a group that exchanges within machines first.
/// Invariant: all processes compute the same layout from the same list.
#pragma once

#include <cstddef>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/collectives/algorithms/sum_members.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// The number of processes of each machine; ranks number the processes machine by machine. Process l
/// of each machine belongs to lane l, that is, exchanges with process l of each other machine; there
/// are as many lanes as the smallest machine has processes.
///
///     machine 0 | rank 0 | rank 1 | rank 2 |
///     machine 1 | rank 3 | rank 4 |             lane 0: 0 3 5, lane 1: 1 4 6
///     machine 2 | rank 5 | rank 6 |
/// \code
///   const lockstep::MachineLayout layout{{3, 2, 2}};
///   layout.lane(1);                  // {1, 4, 6}
/// \endcode
struct MachineLayout {
  std::vector<std::size_t> counts{};  ///< each at least 1

  /// The layout of processes of which each is on the machine with its name. \return nullopt if the
  /// ranks of a machine are not neighbors.
  LOCKSTEP_COLD_DECL static std::optional<MachineLayout> of(std::span<const std::string> machines);

  std::size_t size() const { return std::accumulate(counts.begin(), counts.end(), std::size_t{0}); }
  std::size_t machines() const { return counts.size(); }
  /// The number of processes of the largest machine.
  LOCKSTEP_COLD_DECL std::size_t most() const;
  LOCKSTEP_COLD_DECL std::size_t lanes() const;
  /// The rank of a machine's first process.
  LOCKSTEP_COLD_DECL std::size_t first(std::size_t machine) const;
  LOCKSTEP_COLD_DECL std::size_t machine_of(std::size_t rank) const;
  /// The ranks of a machine's processes.
  LOCKSTEP_COLD_DECL std::vector<std::size_t> members(std::size_t machine) const;
  /// The ranks of a lane's processes, one on each machine.
  LOCKSTEP_COLD_DECL std::vector<std::size_t> lane(std::size_t index) const;

  /// Whether sums within machines, added over the machines, have the bits of `order` over all ranks.
  /// With SumOrder::ranks they have, since a sum can travel along the ranks; with SumOrder::tree
  /// each machine must be a subtree.
  LOCKSTEP_COLD_DECL bool keeps(SumOrder order) const;

  bool operator==(const MachineLayout&) const = default;

 private:
  LOCKSTEP_COLD_DECL bool is_subtree(std::size_t first_machine, std::size_t last_machine) const;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/machine_layout.ipp"
#endif
