/// \file
/// Compile-time requirements on the arguments of `ls::Predictor`, one error message each; see
/// training/checks/model_checks.hpp.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/kernel_calls.hpp"
#include "lockstep/model/forward_plan.hpp"

namespace lockstep::detail {

/// The first requirement that a predictor does not meet, in the order in which they are checked.
enum class PredictorFault {
  none,
  network,
  layers,  ///< the network has already printed its error
  no_layer,
  device,
  memory,
  no_kernel,
  no_forward
};

/// List<Op> of the first op of the network without a kernel on D; List<void> if all have one.
template <class N, class D>
using OpWithoutForwardKernel = decltype(first_without_kernel<D>(
    PlanOps<D, typename std::remove_cvref_t<decltype(N::graph)>::ops>{}));

/// Whether forward of the kernel of TheOp can be called, with the op or with each Constant of it.
template <auto& plan, class TheOp, class D>
constexpr bool can_run_forward() {
  if constexpr (std::is_same_v<TheOp, ViewOp> || HasForward<TheOp, D, TheOp>)
    return true;
  else
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (HasForward<TheOp, D, Constant<plan.pool.template of<TheOp>().op[I]>> && ...);
    }(std::make_index_sequence<plan.pool.template of<TheOp>().count>{});
}
template <auto& plan, class D, class... Ops>
constexpr bool can_run_all(List<Ops...>) {
  for (const bool runs : std::initializer_list<bool>{true, can_run_forward<plan, Ops, D>()...})
    if (!runs) return false;
  return true;
}

template <class N, class D>
constexpr PredictorFault predictor_fault_of() {
  if constexpr (!Network<N>)
    return PredictorFault::network;
  else if constexpr (!N::valid)
    return PredictorFault::layers;
  else if constexpr (N::graph.nodes == 0)
    return PredictorFault::no_layer;
  else if constexpr (!Device<D>)
    return PredictorFault::device;
  else if constexpr (!HostDevice<D>)
    return PredictorFault::memory;
  else if constexpr (!std::is_same_v<OpWithoutForwardKernel<N, D>, List<void>>)
    return PredictorFault::no_kernel;
  else if constexpr (!can_run_all<ForwardPlanOf<N, D>::plan, D>(
                         typename ForwardPlanOf<N, D>::ops{}))
    return PredictorFault::no_forward;
  else
    return PredictorFault::none;
}

/// The error message of a fault.
template <PredictorFault, class N, class D>
struct PredictorVerdict {};

template <class N, class D>
struct PredictorVerdict<PredictorFault::network, N, D> {
  static_assert(Network<N>,
                "lockstep::Predictor: the first argument is not a network; derive it from "
                "Sequential<Input<...>, layers...>");
};
template <class N, class D>
struct PredictorVerdict<PredictorFault::no_layer, N, D> {
  static_assert(N::graph.nodes > 0,
                "lockstep::Predictor: the network has no layer; add one after Input");
};
template <class N, class D>
struct PredictorVerdict<PredictorFault::device, N, D> {
  static_assert(Device<D>,
                "lockstep::Predictor: the second argument is not a device; write ls::Cpu, and "
                "include lockstep/cpu.hpp");
};
template <class N, class D>
struct PredictorVerdict<PredictorFault::memory, N, D> {
  static_assert(HostDevice<D>,
                "lockstep::Predictor: the device does not compute in the host's memory; write "
                "ls::Cpu, or call predict of a Model on a GPU");
};
template <class Missing, class D>
struct MissingKernelVerdict;
template <class TheOp, class D>
struct MissingKernelVerdict<List<TheOp>, D> : CheckKernel<TheOp, D> {};
template <class N, class D>
struct PredictorVerdict<PredictorFault::no_kernel, N, D>
    : MissingKernelVerdict<OpWithoutForwardKernel<N, D>, D> {};
template <class N, class D>
struct PredictorVerdict<PredictorFault::no_forward, N, D> {
  static_assert(always_false<N>,
                "lockstep::Predictor: a kernel of the network has no forward that can be called; "
                "write 'static void forward(const Op&, const Io<D>&)'");
};

}  // namespace lockstep::detail
