/// \file
/// When each step of a plan runs. Invariants: forward of step i is at time i, the loss at time n;
/// backward follows in reverse; the steps of a `Recompute` block that run forward again do so in
/// their order, just before the backward of the block's last step.
#pragma once

#include <array>
#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/model/fusion.hpp"

namespace lockstep::detail {

/// What the kernel of a step asks for.
struct KernelNeeds {
  bool keeps_x = false, keeps_x2 = false, keeps_y = false, in_place = false, exchanges = false;
  bool updates_state = false, knows_again = false, dx_in_place = false;
  std::size_t saved = 0, once = 0;
};

template <std::size_t N>
struct Timetable {
  std::array<int, N + 1> again{}, back{};  ///< times of each step
  std::array<bool, N + 1> runs_again{};
  std::array<int, N + 1> segment_begin{};  ///< of a block's last step: its first one, else -1
  int end = 0;                             ///< behind the last time
};

/// `step` has `n` steps; `producer[v]` is the step that makes value v, -1 for the input; value
/// `output` is the model's.
template <std::size_t N>
constexpr Timetable<N> timetable_of(const std::array<PlanStep, N + 1>& step, int n,
                                    const std::array<KernelNeeds, N + 1>& need,
                                    const std::array<int, N + 1>& producer, int output) {
  Timetable<N> t;
  const auto index = [](int i) { return static_cast<std::size_t>(i); };
  std::array<bool, N + 1> wanted{}, leaves{};  // a value: by its block in backward; by others
  leaves[index(output)] = true;
  int time = n + 1;
  for (int last = n - 1; last >= 0;) {
    const int segment = step[index(last)].segment;
    int first = last;
    if (segment >= 0)
      while (first > 0 && step[index(first - 1)].segment == segment) --first;
    for (int i = last; i >= first; --i) {
      const PlanStep& s = step[index(i)];
      const KernelNeeds& k = need[index(i)];
      t.segment_begin[index(i)] = -1;
      t.runs_again[index(i)] = segment >= 0 && (k.saved > 0 || wanted[index(s.out)] ||
                                                (k.keeps_y && !leaves[index(s.out)]));
      const auto reads = [&](int v, bool keeps) {
        if (v < 0) return;
        const int by = producer[index(v)];
        if (segment < 0 || by < 0 || step[index(by)].segment != segment)
          leaves[index(v)] = true;
        else if (keeps || t.runs_again[index(i)])
          wanted[index(v)] = true;
      };
      reads(s.in0, k.keeps_x);
      reads(s.in1, k.keeps_x2);
    }
    if (segment >= 0) {
      t.segment_begin[index(last)] = first;
      for (int i = first; i <= last; ++i)
        if (t.runs_again[index(i)]) t.again[index(i)] = time++;
    }
    for (int i = last; i >= first; --i) t.back[index(i)] = time++;
    last = first - 1;
  }
  t.end = time;
  return t;
}

}  // namespace lockstep::detail
