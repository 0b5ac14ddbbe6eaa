/// \file
/// The options of a group of processes.
#pragma once

#include <chrono>
#include <cstddef>

#include "lockstep/collectives/algorithms/sum_members.hpp"

namespace lockstep {

/// Equal in all members of the group, except for the polls.
struct GroupOptions {
  std::size_t channel = 0;  ///< of a mesh or a memory, which other groups use as well
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);  ///< without progress
  SumOrder order = SumOrder::ranks;
  /// Polls of memory before a member sleeps; use 0 if the processes have more threads than cores. A
  /// round over connections takes as long as 20 of them and counts as 20, a poll of MPI as 10.
  int spins = 0;
};

}  // namespace lockstep
