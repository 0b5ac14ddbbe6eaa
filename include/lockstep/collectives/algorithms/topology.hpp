/// \file
/// Which processes of a group are connected. Invariants: all processes compute the same
/// connections; they connect every process to every other one, directly or through others.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// `direct`: each process is connected to all others, so that an operation takes one or two
/// messages in a row. `tree`: to its neighbours and along a tree; a process has 2 + log2(size)
/// connections at most, most have three.
enum class Topology { direct, tree };

/// Up to this many processes are connected directly.
inline constexpr std::size_t most_direct = 16;
inline Topology topology_of(std::size_t size) {
  return size <= most_direct ? Topology::direct : Topology::tree;
}

/// A process' place in the tree whose subtrees are those of SumOrder::tree: a segment [first, last)
/// of ranks is led by its first rank, and split into [first, middle) and [middle, last), the left
/// one not smaller. For eight processes:
///
///     0 ──── 4        0 leads [0, 8), [0, 4), [0, 2); its children are 1, 2 and 4
///     ├─ 2   ├─ 6
///     1  └3  5  └7
struct TreePlace {
  struct Child {
    std::size_t rank, last;  ///< it leads the ranks [rank, last)
  };
  std::optional<std::size_t> parent{};
  std::size_t last = 0;           ///< this process leads [rank, last)
  std::vector<Child> children{};  ///< by rank, that is, the smallest segment first
};

LOCKSTEP_COLD_DECL TreePlace tree_place(std::size_t rank, std::size_t size);

/// The ranks to which `rank` is connected, in increasing order.
LOCKSTEP_COLD_DECL std::vector<std::size_t> peers_of(std::size_t rank, std::size_t size,
                                                     Topology topology);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/algorithms/topology.ipp"
#endif
