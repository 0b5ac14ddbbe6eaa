/// \file
/// How far the processes of an elastic job are when a generation ends, and whose state the next one
/// continues with. Invariant: all processes choose alike, since they compare the same values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// How far a process is. All of its members are sent to the other processes as they are.
struct RunStanding {
  /// The collective calls of the model, such as `fit`, so far; the last one has not ended. 0: the
  /// process has just joined, or has only made its model.
  std::uint64_t call = 0;
  std::uint64_t has_begun = 0;    ///< 1: all processes of the call have the same state
  std::uint64_t boundaries = 0;   ///< that the call has passed: steps and ends of epochs
  std::uint64_t is_complete = 0;  ///< 1: the call has its result and waits for the other processes
  std::uint64_t root = 0;         ///< rank of the process' first replica

  /// Whether `other` has passed a boundary that this process has not.
  bool is_behind(const RunStanding& other) const {
    return call < other.call ||
           (call == other.call && (has_begun < other.has_begun || boundaries < other.boundaries));
  }
};

/// The index of the process whose state the job continues with: the latest call, then the latest
/// boundary, then the lowest rank. A process enters the exchange of a boundary after all that comes
/// before, so once one has passed it, all others have done the same.
LOCKSTEP_COLD_DECL std::size_t donor_of(std::span<const RunStanding> all);

/// The standings that the processes sent. \throws Error if one is malformed.
LOCKSTEP_COLD_DECL std::vector<RunStanding> read_standings(
    const std::vector<std::vector<std::byte>>& all);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/elastic/run_standing.ipp"
#endif
