/// \file
/// Plan pass: time of execution of each step. Invariants: with n steps, forward of step i is at
/// time i and the loss at time n; backward follows in reverse order; the recomputed steps of a
/// `Recompute` block run in order, just before backward of the block's last step.
#pragma once

#include <cstddef>

#include "lockstep/model/plan/needs.hpp"

namespace lockstep::detail {

/// Times of steps a, b, c, where a and b form a `Recompute` block and b needs a's output in
/// backward:
/// \code
///   time   0  1  2  3     4       5            6        7
///   runs   a  b  c  loss  back c  recompute a  back b   back a
/// \endcode
template <std::size_t Size>
struct Timetable {
  Table<StepId, int, Size> recompute_time{}, back{};  ///< times of each step
  Table<StepId, bool, Size> is_recomputed{};
  Table<StepId, StepId, Size> segment_begin{};  ///< for the last step of a block: the first one, or
                                                ///< none
  int end = 0;                                  ///< one past the last time
};

/// Decides which steps of a block are recomputed: those that save data, and those whose output is
/// read in backward and not kept by a step outside of the block. Steps are visited from the last to
/// the first: `wanted` are the values read in backward by steps of the same block, `leaves` the
/// values read by other steps.
template <std::size_t Size, std::size_t Operands>
struct RecomputedSteps {
  const StepList<Size, Operands>& steps;
  const Needs<Size, Operands>& needs;
  Table<ValueId, bool, Size> wanted{}, leaves{};

  constexpr bool is_recomputed(StepId i) {
    const PlanStep& s = steps.step[i];
    const KernelNeeds& k = needs.kernel[i];
    const bool reads_saved = k.saved > 0 && needs.has_gradient[s.out];
    const bool recomputes =
        s.segment >= 0 && (reads_saved || wanted[s.out] || (k.keeps_y && !leaves[s.out]));
    for (std::size_t o = s.operands_begin; o < s.operands_end; ++o)
      note_read(s, steps.operand[o], needs.operand[o].keeps || recomputes);
    return recomputes;
  }

 private:
  constexpr void note_read(const PlanStep& s, ValueId v, bool in_backward) {
    const StepId by = needs.producer[v];
    if (s.segment < 0 || !exists(by) || steps.step[by].segment != s.segment)
      leaves[v] = true;
    else if (in_backward)
      wanted[v] = true;
  }
};

template <std::size_t Size, std::size_t Operands>
constexpr Timetable<Size> timetable_of(const StepList<Size, Operands>& steps,
                                       const Needs<Size, Operands>& needs) {
  Timetable<Size> t;
  RecomputedSteps<Size, Operands> recomputed{steps, needs};
  recomputed.leaves[steps.output] = true;
  int time = static_cast<int>(steps.end) + 1;
  for (StepId last = before(steps.end), first = last; exists(last); last = before(first)) {
    const int segment = steps.step[last].segment;
    first = last;
    while (segment >= 0 && exists(before(first)) && steps.step[before(first)].segment == segment)
      --first;
    for (StepId i = last; i >= first; --i) {
      t.segment_begin[i] = StepId::none;
      t.is_recomputed[i] = recomputed.is_recomputed(i);
    }
    if (segment >= 0) t.segment_begin[last] = first;
    for (StepId i = first; i <= last; ++i)
      if (t.is_recomputed[i]) t.recompute_time[i] = time++;
    for (StepId i = last; i >= first; --i) t.back[i] = time++;
  }
  t.end = time;
  return t;
}

}  // namespace lockstep::detail
