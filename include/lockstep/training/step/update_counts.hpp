/// \file
/// The counters of steps that a job's parameter servers make in phases.
#pragma once

#include <cstdint>

namespace lockstep {

/// The steps of a model so far that were asynchronous, or had backup workers, as its servers have
/// counted them.
struct UpdateCounts {
  std::uint64_t steps = 0;
  /// The most updates that the gradients of a step have missed: those that were made between the
  /// moment at which its worker read the weights and its own.
  std::uint64_t most_stale = 0;
  /// Whether each server has applied each step once.
  bool each_once = true;
  /// With backup workers, the slices that were not used because another worker was faster.
  std::uint64_t copies_dropped = 0;
};

}  // namespace lockstep
