/// \file
/// The counters of asynchronous steps in a job's parameter servers.
#pragma once

#include <cstdint>

namespace lockstep {

/// The asynchronous steps of a model so far, as its servers have counted them.
struct UpdateCounts {
  std::uint64_t steps = 0;
  /// The most updates that the gradients of a step have missed: those that were made between the
  /// moment at which its worker read the weights and its own.
  std::uint64_t most_stale = 0;
  /// Whether each server has applied each step once.
  bool each_once = true;
};

}  // namespace lockstep
