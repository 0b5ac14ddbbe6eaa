/// \file
/// Which slices of the steps of a phase may begin. Invariants: a step is begun and finished once, and
/// each of its slices is accepted once; no more than `staleness` other steps are finished between the
/// beginning and the end of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

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
///
/// A step may have several slices. Once all of them are handed out, `copies` more workers get one that
/// is not accepted yet: that of the fewest workers, of these the longest outstanding one. So any
/// `copies` workers may be arbitrarily slow, and the step still ends.
class Tickets {
 public:
  /// Those of `made` are finished already.
  Tickets(std::uint64_t steps, std::uint64_t staleness, MadeSteps made = {}, std::size_t slices = 1,
          std::size_t copies = 0)
      : made_(std::move(made)),
        next_(made_.all_below),
        end_(steps),
        staleness_(staleness),
        slices_(slices),
        copies_(copies) {
    pass_made();
  }

  /// Hands out a slice. \returns its number in the phase, step * slices + slice of the step; nullopt
  /// if there is none, or if it may not begin yet.
  LOCKSTEP_DECL std::optional<std::uint64_t> grant();
  /// All servers have the gradients of the slice. \returns false if those of another worker count.
  LOCKSTEP_DECL bool accept(std::uint64_t slice);
  /// Whether `accept` would return true.
  LOCKSTEP_DECL bool needs(std::uint64_t slice) const;
  /// Whether the step is outstanding or, if copies of it may come later, was so.
  LOCKSTEP_DECL bool has_begun(std::uint64_t step) const;
  /// Whether all slices of a step that is not finished are accepted.
  LOCKSTEP_DECL bool is_accepted(std::uint64_t step) const;
  /// The step is part of the weights.
  LOCKSTEP_DECL void finish(std::uint64_t step);
  /// No step begins any more, except those before one that is made or has begun.
  LOCKSTEP_COLD_DECL void stop();
  /// Whether all steps that have begun are finished, and no other may begin.
  bool is_done() const { return outstanding_.empty() && next_ == end_; }
  /// The slices that `accept` has refused.
  std::uint64_t dropped() const { return dropped_; }

 private:
  struct Part {
    std::size_t workers = 0;  // that have begun it
    bool is_accepted = false;
  };
  struct Begun {
    std::uint64_t finished;  // steps, before it began
    std::size_t handed_out = 0, accepted = 0;
    std::vector<Part> parts{};
  };
  void pass_made() {
    while (next_ < end_ && made_.contains(next_)) ++next_;
  }
  std::uint64_t hand_out(std::uint64_t step, Begun& of, std::size_t part) {
    ++of.parts[part].workers;
    return step * slices_ + part;
  }
  LOCKSTEP_DECL bool may_begin() const;
  LOCKSTEP_DECL std::optional<std::uint64_t> grant_copy();

  MadeSteps made_;  // before
  std::uint64_t next_, end_, staleness_, finished_ = 0, dropped_ = 0;
  std::size_t slices_, copies_;
  std::map<std::uint64_t, Begun> outstanding_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/asynchronous/tickets.ipp"
#endif
