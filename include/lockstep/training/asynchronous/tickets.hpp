/// \file
/// Which steps of an asynchronous phase may begin. Invariants: a step is handed out and finished
/// once; no more than `staleness` other steps are finished between the beginning and the end of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "lockstep/core/config.hpp"
#include "lockstep/training/step/made_steps.hpp"

namespace lockstep::detail {

/// The steps of a phase, handed out in order. Not thread-safe.
///
///     finished    outstanding                       not begun
///     0 1 2 4     3 5                               6 7 8 ...
///
/// With a step that begins, each outstanding one may see all others of them end before itself. So a
/// step may begin only if, for each outstanding one,
///
///     finished since it began + outstanding others, with the new one <= staleness
///
/// and if as many are outstanding as `staleness` at most. With staleness 0 steps are made one after
/// the other.
class Tickets {
 public:
  /// Those of `made` are finished already.
  Tickets(std::uint64_t steps, std::uint64_t staleness, MadeSteps made = {})
      : made_(std::move(made)), next_(made_.all_below), end_(steps), staleness_(staleness) {
    pass_made();
  }

  /// Begins the next step. \returns nullopt if there is none, or if it may not begin yet.
  LOCKSTEP_DECL std::optional<std::uint64_t> grant();
  /// The step is part of the weights.
  LOCKSTEP_DECL void finish(std::uint64_t step);
  /// No step begins any more, except those before one that is made or has begun.
  LOCKSTEP_COLD_DECL void stop();
  /// Whether all steps that have begun are finished, and no other may begin.
  bool is_done() const { return outstanding_.empty() && next_ == end_; }
  std::uint64_t finished() const { return finished_; }

 private:
  void pass_made() {
    while (next_ < end_ && made_.contains(next_)) ++next_;
  }
  MadeSteps made_;  // before
  std::uint64_t next_, end_, staleness_, finished_ = 0;
  std::map<std::uint64_t, std::uint64_t> outstanding_;  // with the steps finished before it began
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/asynchronous/tickets.ipp"
#endif
