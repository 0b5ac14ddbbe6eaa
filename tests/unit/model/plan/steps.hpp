/// \file
/// Hand-made steps for the tests of plan passes, without a network or device.
#pragma once

#include <cstddef>

#include "lockstep/model/plan/needs.hpp"

namespace passes {

using namespace lockstep::detail;

inline constexpr std::size_t size = 8;
using Bytes = Table<ValueId, std::size_t, size>;

/// Steps and the needs of their kernels. `add` appends a step whose output is the next value.
struct Steps {
  StepList<size> list;
  Needs<size> needs = [] {
    Needs<size> result;
    for (StepId& by : result.producer.item) by = StepId::none;
    return result;
  }();

  constexpr ValueId add(ValueId in0, const KernelNeeds& k = {}, ValueId in1 = ValueId::none,
                        int segment = -1) {
    const StepId i = list.end;
    PlanStep& s = list.step[i];
    s = {};
    s.in0 = in0;
    s.in1 = in1;
    s.out = list.output = ValueId{static_cast<int>(i) + 1};
    s.segment = segment;
    needs.kernel[i] = k;
    needs.producer[s.out] = i;
    needs.has_gradient[s.out] = true;
    ++needs.readers[in0];
    if (exists(in1)) ++needs.readers[in1];
    ++list.end;
    return s.out;
  }
  /// Gives the last step `count` weights from `begin` on.
  constexpr void weights(std::size_t begin, std::size_t count) {
    PlanStep& s = list.step[before(list.end)];
    s.w = begin;
    s.w_count = count;
  }
};

inline constexpr StepId a{0}, b{1}, c{2}, d{3};

}  // namespace passes
