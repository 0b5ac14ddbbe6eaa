/// \file
/// The end of an elastic job whose members live but cannot exchange data. Pure functions and state.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Counts generations of the same members that ended before they trained. A member that has died
/// is not in the next generation, so such a failure means that a connection is cut between two
/// members that both reach the others:
///
///     failed, failed again --the rank to blame--> leaves
///              '------------the others----------> form the next generation without it
///     failed for the third time, or for `limit`: all give up
class FailedGenerations {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Action { go_on, leave, give_up };

  explicit FailedGenerations(std::chrono::milliseconds limit) : limit_(limit) {}

  /// The rank that a loss names.
  void blame(std::size_t rank) { blamed_ = rank; }
  /// A generation has ended, in which this process had the rank `own`.
  LOCKSTEP_COLD_DECL Action ended(std::size_t own, bool has_trained, Time now);
  /// The next one begins. `same`: it has the same members.
  LOCKSTEP_COLD_DECL void begin(bool same);

 private:
  std::chrono::milliseconds limit_;
  std::optional<std::size_t> blamed_{};
  std::size_t count_ = 0;
  Time first_{};
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/strategies/failed_generations.ipp"
#endif
