/// \file
/// The first pass of a plan: requirements of each step's kernel, producer and number of readers of
/// each value, and whether its gradient is needed.
#pragma once

#include <cstddef>
#include <type_traits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/model/fusion.hpp"
#include "lockstep/model/index.hpp"

namespace lockstep::detail {

/// Requirements of a step's kernel.
struct KernelNeeds {
  bool keeps_x = false, keeps_x2 = false, keeps_y = false, in_place = false, exchanges = false;
  bool updates_state = false, handles_recompute = false, dx_in_place = false, lacks_dx = false;
  std::size_t saved = 0, once = 0;
};

/// Requirements of all steps, and facts about all values:
/// \code
///   step                 conv2d   re_lu    add
///   in0 -> out           0 -> 1   1 -> 2   2 -> 3, in1 = 1
///   producer[value]      none, conv2d, re_lu, add
///   readers[value]       1,    2,      1,     0
///   has_gradient[value]  no,   yes,    yes,   yes: a weight that trains precedes it
/// \endcode
/// Backward leaves out a step whose result has no gradient.
template <std::size_t Size>
struct Needs {
  Table<StepId, KernelNeeds, Size> kernel{};
  Table<ValueId, StepId, Size> producer{};  ///< none for the batch
  Table<ValueId, int, Size> readers{};
  Table<ValueId, bool, Size> has_gradient{};

  /// Whether v may be overwritten once its only reader has run.
  constexpr bool is_free_after_its_reader(ValueId v) const {
    const StepId by = producer[v];
    return exists(by) && !kernel[by].keeps_y && readers[v] == 1;
  }
};

/// Requirements of the kernel of node n; `pool` holds its op.
template <class D, class Pool, class... Ops>
constexpr KernelNeeds needs_of(const Pool& pool, const Node& n, List<Ops...>) {
  KernelNeeds result;
  int type = 0;
  const auto ask = [&]<class TheOp>() {
    if (type++ != n.type) return;
    if constexpr (!std::is_same_v<TheOp, ViewOp>) {
      using K = Kernel<TheOp, D>;
      const TheOp& op = pool.template of<TheOp>().op[n.op];
      result = {K::keeps_x,           K::keeps_x2,      K::keeps_y,
                K::in_place,          K::exchanges(op), K::updates_state(op),
                K::handles_recompute, K::dx_in_place,   false,
                K::saved(op),         K::saved_once(op)};
      if constexpr (requires { K::has_dx(op); }) result.lacks_dx = !K::has_dx(op);
    }
  };
  (ask.template operator()<Ops>(), ...);
  return result;
}

/// Requirements of all steps on device D. `wants_input`: the gradient of the batch is needed, too.
template <class D, class Ops, std::size_t Size>
constexpr Needs<Size> needs_of(const FusedGraph<Ops, Size>& fused, bool wants_input = false) {
  Needs<Size> result;
  result.has_gradient[ValueId::batch] = wants_input;
  for (StepId& by : result.producer.item) by = StepId::none;
  for (StepId i{}; i < fused.end; ++i) {
    const PlanStep& s = fused.step[i];
    result.kernel[i] = needs_of<D>(fused.pool, s, Ops{});
    result.producer[s.out] = i;
    ++result.readers[s.in0];
    if (exists(s.in1)) ++result.readers[s.in1];
    result.has_gradient[s.out] =
        s.trains() || result.has_gradient[s.in0] || (exists(s.in1) && result.has_gradient[s.in1]);
    KernelNeeds& k = result.kernel[i];
    if (!result.has_gradient[s.out]) k.keeps_x = k.keeps_x2 = k.keeps_y = false;
  }
  return result;
}

}  // namespace lockstep::detail
