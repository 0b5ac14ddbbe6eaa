/// \file
/// The plan of a forward pass alone, as constants: the steps of the training plan, without what
/// backward needs. Invariants: kernels and ops are those of training, so the outputs have the same
/// bits; no gradient has memory, and no value outlives its last reader.
#pragma once

#include <cstddef>

#include "lockstep/model/plan.hpp"

namespace lockstep::detail {

/// Needs in inference: backward reads nothing.
template <std::size_t Size, std::size_t Operands>
constexpr Needs<Size, Operands> without_backward(Needs<Size, Operands> needs) {
  for (KernelNeeds& k : needs.kernel.item) k.keeps_y = false;
  needs.operand = {};
  needs.has_gradient = {};
  return needs;
}

/// Step i runs at time i, and what its kernel saves is live at that time only.
template <std::size_t Size>
constexpr Timetable<Size> forward_timetable(StepId end) {
  Timetable<Size> t;
  for (StepId i{}; i < end; ++i) {
    t.back[i] = static_cast<int>(i);
    t.segment_begin[i] = StepId::none;
  }
  t.end = static_cast<int>(end) + 1;
  return t;
}

/// Lifetimes and arena offsets of a forward pass.
template <class D, auto& graph, auto& fused>
constexpr auto lay_out_forward() {
  constexpr std::size_t size = static_cast<std::size_t>(graph.nodes) + 1;
  Table<ValueId, std::size_t, size> elements{}, bytes{};  // of each value, per example
  for (ValueId v{}; static_cast<std::size_t>(v) < size; ++v) {
    elements[v] = graph.value[v].size();
    bytes[v] = elements[v] * sizeof(ActivationOf<D>);
  }

  const auto needs = without_backward(needs_of<D>(fused));
  const Timetable<size> times = forward_timetable<size>(fused.end);
  const Sharing<size> sharing = sharing_of(fused, needs, false);
  Lifetimes<size, graph.operand.size(), false> lifetimes(fused, needs, times, sharing);
  if (is_computed(fused.output))
    lifetimes.activation(fused.output).needed_at(static_cast<int>(fused.end), bytes[fused.output]);
  for (StepId i{}; i < fused.end; ++i) add_values(lifetimes, i, bytes);

  auto p = copy_steps(fused, elements);
  static_cast<ArenaSize&>(p) = place_all(p.step, p.operand, lifetimes);
  p.output_is_input = fused.output == ValueId::batch;
  if (!p.output_is_input) p.output = lifetimes.activation(fused.output).offset;
  return p;
}

/// The forward plan of a valid model.
template <class Net, class D>
struct ForwardPlanOf : FusedOf<Net, D> {
  static constexpr auto plan = lay_out_forward<D, Net::graph, FusedOf<Net, D>::fused>();
};

}  // namespace lockstep::detail
