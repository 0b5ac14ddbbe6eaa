/// \file
/// Hand-made steps for the tests of plan passes, without a network or device.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "lockstep/model/plan/needs.hpp"

namespace passes {

using namespace lockstep::detail;

inline constexpr std::size_t size = 8, operands = 12;
using Bytes = Table<ValueId, std::size_t, size>;

/// Needs of a kernel, of which `keeps_x` is for all operands.
struct Kept {
  bool keeps_x = false, keeps_y = false, in_place = false, exchanges = false;
  bool updates_state = false, dx_in_place = false;
  std::size_t saved = 0, once = 0;
};

/// Steps and the needs of their kernels. `add` appends a step whose output is the next value.
struct Steps {
  StepList<size, operands> list;
  Needs<size, operands> needs = [] {
    Needs<size, operands> result;
    for (StepId& by : result.producer.item) by = StepId::none;
    return result;
  }();

  /// Reads x, and `more`.
  constexpr ValueId add(ValueId x, const Kept& k = {}, std::initializer_list<ValueId> more = {},
                        int segment = -1) {
    const StepId i = list.end;
    PlanStep& s = list.step[i];
    s = {};
    s.operands_begin = s.operands_end = used;
    s.out = list.output = ValueId{static_cast<int>(i) + 1};
    s.segment = segment;
    const auto read = [&](ValueId v) {
      list.operand[used] = v;
      needs.operand[used] = {k.keeps_x, needs.has_gradient[v]};
      ++needs.readers[v];
      s.operands_end = ++used;
    };
    read(x);
    for (const ValueId v : more) read(v);
    needs.kernel[i] = {.keeps_y = k.keeps_y,
                       .in_place = k.in_place,
                       .exchanges = k.exchanges,
                       .updates_state = k.updates_state,
                       .dx_in_place = k.dx_in_place,
                       .saved = k.saved,
                       .once = k.once};
    needs.producer[s.out] = i;
    needs.has_gradient[s.out] = true;
    ++list.end;
    return s.out;
  }
  /// Gives the last step `count` weights from `begin` on.
  constexpr void weights(std::size_t begin, std::size_t count) {
    PlanStep& s = list.step[before(list.end)];
    s.w = begin;
    s.w_count = count;
  }

 private:
  std::size_t used = 0;
};

/// Operand `which` of a step, of all.
constexpr std::size_t operand_of(const PlanStep& s, std::size_t which = 0) {
  return s.operands_begin + which;
}

inline constexpr StepId a{0}, b{1}, c{2}, d{3};

}  // namespace passes
