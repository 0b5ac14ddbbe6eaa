/// \file
/// The first pass of a plan: requirements of each step's kernel, producer and number of readers of
/// each value, and whether its gradient is needed.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/model/fusion.hpp"
#include "lockstep/model/index.hpp"

namespace lockstep::detail {

/// Requirements of a step's kernel.
struct KernelNeeds {
  bool keeps_y = false, in_place = false, exchanges = false;
  bool updates_state = false, handles_recompute = false, dx_in_place = false, lacks_dx = false;
  std::size_t saved = 0, once = 0;
};

/// Requirements of a step's kernel for one of its operands.
struct OperandNeeds {
  bool keeps = false;     ///< backward reads it
  bool wants_dx = false;  ///< backward writes its gradient
};

/// Requirements of all steps, and facts about all values:
/// \code
///   step                 conv2d   re_lu    add
///   operands -> out      0 -> 1   1 -> 2   2, 1 -> 3
///   producer[value]      none, conv2d, re_lu, add
///   readers[value]       1,    2,      1,     0
///   has_gradient[value]  no,   yes,    yes,   yes: a weight that trains precedes it
/// \endcode
/// A value that only masks are made of has no gradient either. Backward leaves out a step whose
/// result has none.
template <std::size_t Size, std::size_t Operands>
struct Needs {
  Table<StepId, KernelNeeds, Size> kernel{};
  std::array<OperandNeeds, Operands> operand{};  ///< as StepList::operand
  Table<ValueId, StepId, Size> producer{};       ///< none for the batch
  Table<ValueId, int, Size> readers{};
  Table<ValueId, bool, Size> has_gradient{};

  /// Whether v may be overwritten once its only reader has run.
  constexpr bool is_free_after_its_reader(ValueId v) const {
    const StepId by = producer[v];
    return exists(by) && !kernel[by].keeps_y && readers[v] == 1;
  }
};

/// Requirements of the kernel of node n, and for each of its `operands`: whether it is kept, and
/// whether it has a gradient at all. `pool` holds the op.
template <class D, class Pool, class... Ops>
constexpr KernelNeeds needs_of(const Pool& pool, const Node& n, std::span<OperandNeeds> operands,
                               List<Ops...>) {
  KernelNeeds result;
  int type = 0;
  const auto ask = [&]<class TheOp>() {
    if (type++ != n.type) return;
    if constexpr (!std::is_same_v<TheOp, ViewOp>) {
      using K = Kernel<TheOp, D>;
      const TheOp& op = pool.template of<TheOp>().op[n.op];
      result = {
          K::keeps_y,     K::in_place, K::exchanges(op), K::updates_state(op), K::handles_recompute,
          K::dx_in_place, false,       K::saved(op),     K::saved_once(op)};
      for (std::size_t i = 0; i < operands.size(); ++i)
        operands[i] = {keeps_operand<K>(op, i), has_gradient(op, i)};
      if constexpr (requires { K::has_dx(op); }) result.lacks_dx = !K::has_dx(op);
    }
  };
  (ask.template operator()<Ops>(), ...);
  return result;
}

/// Requirements of all steps on device D. `wants_input`: the gradient of the batch is needed, too.
template <class D, class Ops, std::size_t Size, std::size_t Operands>
constexpr Needs<Size, Operands> needs_of(const FusedGraph<Ops, Size, Operands>& fused,
                                         bool wants_input = false) {
  Needs<Size, Operands> result;
  result.has_gradient[ValueId::batch] = wants_input;
  for (StepId& by : result.producer.item) by = StepId::none;
  for (StepId i{}; i < fused.end; ++i) {
    const PlanStep& s = fused.step[i];
    result.kernel[i] = needs_of<D>(
        fused.pool, s, std::span(result.operand).subspan(s.operands_begin, s.operands()), Ops{});
    result.producer[s.out] = i;
    bool depends = s.trains();  // on what trains
    for (std::size_t k = s.operands_begin; k < s.operands_end; ++k) {
      const ValueId v = fused.operand[k];
      ++result.readers[v];
      depends = depends || (result.operand[k].wants_dx && result.has_gradient[v]);
    }
    result.has_gradient[s.out] = depends;
  }
  Table<ValueId, bool, Size> counts{};  // whether the loss depends on the value
  counts[fused.output] = true;
  for (StepId i = before(fused.end); exists(i); --i) {
    const PlanStep& s = fused.step[i];
    bool& has_gradient = result.has_gradient[s.out];
    has_gradient = has_gradient && counts[s.out];
    if (!has_gradient) result.kernel[i].keeps_y = false;
    for (std::size_t k = s.operands_begin; k < s.operands_end; ++k) {
      OperandNeeds& o = result.operand[k];
      const ValueId v = fused.operand[k];
      o = {has_gradient && o.keeps, has_gradient && o.wants_dx && result.has_gradient[v]};
      counts[v] = counts[v] || o.wants_dx;
    }
  }
  return result;
}

}  // namespace lockstep::detail
