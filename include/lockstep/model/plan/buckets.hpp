/// \file
/// Plan pass: buckets of gradients, and state to average. Invariants: buckets cover the flat
/// gradients exactly once, from the end; a bucket is final after the backward pass of its step.
#pragma once

#include <array>
#include <cstddef>

#include "lockstep/model/plan/needs.hpp"

namespace lockstep::detail {

/// A range of the flat gradients that is final after the backward pass of step `after`.
struct Bucket {
  std::size_t begin = 0, end = 0;
  StepId after{};
};

/// A range of the flat state that each replica updates from its own examples.
struct StateRange {
  std::size_t begin = 0, end = 0;
};

/// Minimum number of elements in a bucket.
inline constexpr std::size_t bucket_elements = 64 * 1024;

/// The buckets, in the order in which backward completes them:
/// \code
///   step         a (40,000)        b (50,000)    c (20,000)
///   gradients    0 ......... 40,000 ............. 90,000 ....... 110,000
///   bucket[1]    [after a   ]
///   bucket[0]               [after b                            ]
/// \endcode
template <std::size_t Size>
struct Buckets {
  std::array<Bucket, Size> bucket{};
  std::size_t buckets = 0;
};

/// Cuts the `weights` gradients of the steps into buckets. A layer with several calls has the
/// weights of its first one, whose backward is the last.
template <std::size_t Size, std::size_t Operands>
constexpr Buckets<Size> buckets_of(const StepList<Size, Operands>& steps, std::size_t weights) {
  // A fused step may stand after steps with higher weights. The final part of the gradients
  // therefore begins at the highest weight of all steps that are still to come.
  Table<StepId, std::size_t, Size> unfinished{};
  std::size_t highest = 0;
  for (StepId i{}; i < steps.end; ++i) {
    unfinished[i] = highest;
    const PlanStep& s = steps.step[i];
    if (s.trains() && s.w + s.w_count > highest) highest = s.w + s.w_count;
  }
  Buckets<Size> result;
  std::size_t end = weights;
  for (StepId i = before(steps.end); exists(i); --i) {
    const std::size_t begin = unfinished[i];
    if (end - begin < bucket_elements && (i > StepId{} || end == begin)) continue;
    result.bucket[result.buckets++] = {begin, end, i};
    end = begin;
  }
  return result;
}

/// State that each replica updates from its own examples, such as running statistics. Adjacent
/// ranges are merged.
template <std::size_t Size>
struct AveragedState {
  std::array<StateRange, Size> averaged{};
  std::size_t averages = 0;
  std::size_t averaged_size = 0;  ///< elements in all ranges

  /// Whether a range has this element, as after the first of several calls of a layer.
  constexpr bool has(std::size_t element) const {
    for (std::size_t i = 0; i < averages; ++i)
      if (element >= averaged[i].begin && element < averaged[i].end) return true;
    return false;
  }
};

template <std::size_t Size, std::size_t Operands>
constexpr AveragedState<Size> averaged_state_of(const StepList<Size, Operands>& steps,
                                                const Needs<Size, Operands>& needs) {
  AveragedState<Size> result;
  for (StepId i{}; i < steps.end; ++i) {
    const PlanStep& s = steps.step[i];
    const KernelNeeds& k = needs.kernel[i];
    if (!k.updates_state || k.exchanges || s.is_frozen || s.state_count == 0 || result.has(s.state))
      continue;
    if (result.averages == 0 || result.averaged[result.averages - 1].end != s.state)
      result.averaged[result.averages++].begin = s.state;
    result.averaged[result.averages - 1].end = s.state + s.state_count;
    result.averaged_size += s.state_count;
  }
  return result;
}

}  // namespace lockstep::detail
