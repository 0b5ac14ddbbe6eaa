/// \file
/// Compile-time requirements on the arguments of `ls::Model` and on its data, one error message
/// each. Invariants: the fault is computed as a value; only a faulty model instantiates the class
/// with the static_assert, on which nothing else depends, so the compiler prints one error.
///
///     fault_of<Net, S, L, O, Ms...>() --> ModelFault
///         none:  the constrained Model<...> is chosen
///         other: the primary Model<...> instantiates ModelVerdict<fault, ...>: one static_assert
#pragma once

#include <concepts>
#include <span>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/concepts/loss.hpp"
#include "lockstep/concepts/metric.hpp"
#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/concepts/state_mean.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/model/engine.hpp"

namespace lockstep::detail {

/// The first requirement that a model does not meet, in the order in which they are checked.
enum class ModelFault {
  none,
  network,
  layers,  ///< the network has already printed its error
  no_layer,
  strategy,
  loss,
  optimizer,
  metric,
  loss_does_not_fit,
  metric_does_not_fit,
  no_kernel,
  no_pass,
  no_state_mean
};

/// The ops of a model on its device: those of its layers (after fusion), loss, optimizer and
/// metrics.
template <class N, class S, class L, class O, class... Ms>
using OpsOfModel = typename Concat<
    PlanOps<typename S::device, typename std::remove_cvref_t<decltype(N::graph)>::ops>,
    List<
        std::remove_cvref_t<decltype(std::declval<const L&>().op(N::output_shape))>,
        std::remove_cvref_t<decltype(std::declval<const O&>().op(0.0, 1))>,
        std::remove_cvref_t<decltype(std::declval<const Ms&>().template op<typename L::target_type>(
            N::output_shape))>...>>::type;
/// List<Op> of the first op without a kernel on the device; List<void> if all have one.
template <class N, class S, class L, class O, class... Ms>
using OpWithoutKernel =
    decltype(first_without_kernel<typename S::device>(OpsOfModel<N, S, L, O, Ms...>{}));

/// A kernel whose has_dx cannot be called with the op, so that the plan would ignore it.
template <class K, class TheOp>
concept WrongHasDx =
    requires { &K::has_dx; } && !requires(const TheOp& op) { bool{K::has_dx(op)}; };

/// Which passes of an op's kernel can be called: both, or the first that is missing.
enum class Passes { both, no_forward, no_backward, no_has_dx };
/// Checks the kernel of TheOp on D. A kernel may accept the op as a value, or as Constant<op> for
/// every op value that occurs in the plan.
template <auto& plan, class TheOp, class D>
constexpr Passes passes_of() {
  if constexpr (std::is_same_v<TheOp, ViewOp>) {
    return Passes::both;
  } else {
    bool forward = HasForward<TheOp, D, TheOp>, backward = HasBackward<TheOp, D, TheOp>;
    if constexpr (!HasForward<TheOp, D, TheOp> || !HasBackward<TheOp, D, TheOp>) {
      const auto ask = [&]<std::size_t... I>(std::index_sequence<I...>) {
        forward = forward ||
                  (HasForward<TheOp, D, Constant<plan.pool.template of<TheOp>().op[I]>> && ...);
        backward = backward ||
                   (HasBackward<TheOp, D, Constant<plan.pool.template of<TheOp>().op[I]>> && ...);
      };
      ask(std::make_index_sequence<plan.pool.template of<TheOp>().count>{});
    }
    if (WrongHasDx<Kernel<TheOp, D>, TheOp>) return Passes::no_has_dx;
    return !forward ? Passes::no_forward : backward ? Passes::both : Passes::no_backward;
  }
}
/// Index of the first op among Ops whose kernel lacks a pass; sizeof...(Ops) if none does.
template <auto& plan, class D, class... Ops>
constexpr std::size_t first_without_pass(List<Ops...>) {
  std::size_t i = 0;
  for (const Passes found : std::initializer_list<Passes>{passes_of<plan, Ops, D>()...}) {
    if (found != Passes::both) break;
    ++i;
  }
  return i;
}

/// The first fault of a model. Each check relies on the ones before it, so the order matters.
template <class N, class S, class L, class O, class... Ms>
constexpr ModelFault fault_of() {
  if constexpr (!Network<N>)
    return ModelFault::network;
  else if constexpr (!N::valid)
    return ModelFault::layers;
  else if constexpr (N::graph.nodes == 0)
    return ModelFault::no_layer;
  else if constexpr (!Strategy<S>)
    return ModelFault::strategy;
  else if constexpr (!Loss<L>)
    return ModelFault::loss;
  else if constexpr (!Optimizer<O>)
    return ModelFault::optimizer;
  else if constexpr (!(Metric<Ms> && ...))
    return ModelFault::metric;
  else if constexpr (!L::accepts(N::output_shape))
    return ModelFault::loss_does_not_fit;
  else if constexpr (!(MetricOf<Ms, typename L::target_type, N::output_shape> && ...))
    return ModelFault::metric_does_not_fit;
  else if constexpr (!std::is_same_v<OpWithoutKernel<N, S, L, O, Ms...>, List<void>>)
    return ModelFault::no_kernel;
  else if constexpr (first_without_pass<PlanOf<N, typename S::device>::plan, typename S::device>(
                         typename PlanOf<N, typename S::device>::ops{}) <
                     PlanOf<N, typename S::device>::ops::size)
    return ModelFault::no_pass;
  else if constexpr (PlanOf<N, typename S::device>::plan.updates_state &&
                     !HasKernel<StateMean, typename S::device>)
    return ModelFault::no_state_mean;
  else
    return ModelFault::none;
}

/// The error message of a fault.
template <ModelFault, class N, class S, class L, class O, class... Ms>
struct ModelVerdict {};

template <class N, class S, class L, class O, class... Ms>
struct ModelVerdict<ModelFault::network, N, S, L, O, Ms...> {
  static_assert(Network<N>,
                "lockstep::Model: the first argument is not a network; derive it from "
                "Sequential<Input<...>, layers...>");
};
template <class N, class S, class L, class O, class... Ms>
struct ModelVerdict<ModelFault::no_layer, N, S, L, O, Ms...> {
  static_assert(N::graph.nodes > 0, "lockstep::Model: the model has no layer; add one after Input");
};
template <class N, class S, class L, class O, class... Ms>
struct ModelVerdict<ModelFault::strategy, N, S, L, O, Ms...> {
  static_assert(
      Strategy<S>,
      "lockstep::Model: the second argument is not a strategy; write ls::OneDevice<ls::Cpu>{}");
};
template <class N, class S, class L, class O, class... Ms>
struct ModelVerdict<ModelFault::loss, N, S, L, O, Ms...> {
  static_assert(Loss<L>,
                "lockstep::Model: the third argument is not a loss; write "
                "ls::SparseCategoricalCrossentropy{...}");
};
template <class N, class S, class L, class O, class... Ms>
struct ModelVerdict<ModelFault::optimizer, N, S, L, O, Ms...> {
  static_assert(Optimizer<O>,
                "lockstep::Model: the fourth argument is not an optimizer; write ls::SGD{...}");
};
template <class X>
struct NoMetric {
  static_assert(Loss<X>,
                "lockstep::Model: an argument after the optimizer is not a metric; write "
                "ls::Accuracy{}");
  static_assert(!Loss<X>,
                "lockstep::Model: 'X', an argument after the optimizer, is a loss; write "
                "ls::MeanOf<X>{} for its mean as a metric");
};
/// The error for the first argument that is not a metric.
template <class M, class... Ms>
auto no_metric() {
  if constexpr (Metric<M>)
    return no_metric<Ms...>();
  else
    return NoMetric<M>{};
}
template <class N, class S, class L, class O, class... Ms>
struct ModelVerdict<ModelFault::metric, N, S, L, O, Ms...> : decltype(no_metric<Ms...>()) {};
template <class N, class S, class L, class O, class... Ms>
struct ModelVerdict<ModelFault::loss_does_not_fit, N, S, L, O, Ms...> {
  static_assert(L::accepts(N::output_shape),
                "lockstep::Model: the loss does not accept the model's output shape; change the "
                "last layer, or the loss' 'accepts'");
};
template <class M, class Target>
struct MetricDoesNotFit {
  static_assert(always_false<M>,
                "lockstep::Model: 'M', a metric, does not fit the model's output or the loss' "
                "targets; use one for this task, such as Accuracy for classes, or remove it");
};
/// The error for the first metric that does not fit.
template <class Target, Shape output, class M, class... Ms>
auto metric_does_not_fit() {
  if constexpr (MetricOf<M, Target, output>)
    return metric_does_not_fit<Target, output, Ms...>();
  else
    return MetricDoesNotFit<M, Target>{};
}
template <class N, class S, class L, class O, class... Ms>
struct ModelVerdict<ModelFault::metric_does_not_fit, N, S, L, O, Ms...>
    : decltype(metric_does_not_fit<typename L::target_type, N::output_shape, Ms...>()) {};
// A missing kernel: the error of CheckKernel names the op and the device.
template <class TheOp, class D>
struct KernelVerdict;
template <class TheOp, class D>
struct KernelVerdict<List<TheOp>, D> : CheckKernel<TheOp, D> {};
template <class N, class S, class L, class O, class... Ms>
struct ModelVerdict<ModelFault::no_kernel, N, S, L, O, Ms...>
    : KernelVerdict<OpWithoutKernel<N, S, L, O, Ms...>, typename S::device> {};
// A kernel without a pass: exactly one of the assertions fails.
template <class Op, class D, Passes Found>
struct PassVerdict {
  static_assert(Found != Passes::no_forward,
                "lockstep::Kernel: Kernel<Op, D> has no forward that can be called; write 'static "
                "void forward(const Op&, const Io<D>&)', with a third argument 'Prepared&' if the "
                "kernel has a Prepared");
  static_assert(Found != Passes::no_has_dx,
                "lockstep::Kernel: Kernel<Op, D>::has_dx cannot be called; write 'static constexpr "
                "bool has_dx(const Op&)'");
  static_assert(Found != Passes::no_backward,
                "lockstep::Kernel: Kernel<Op, D> has no backward that can be called; write 'static "
                "void backward(const Op&, const Io<D>&)', with a third argument 'Prepared&' if the "
                "kernel has a Prepared");
};
template <auto& plan, class D, class... Ops>
auto pass_verdict(List<Ops...>) {
  using Op = At<first_without_pass<plan, D>(List<Ops...>{}), Ops...>;
  return PassVerdict<Op, D, passes_of<plan, Op, D>()>{};
}
template <class N, class S, class L, class O, class... Ms>
struct ModelVerdict<ModelFault::no_pass, N, S, L, O, Ms...>
    : decltype(pass_verdict<PlanOf<N, typename S::device>::plan, typename S::device>(
          typename PlanOf<N, typename S::device>::ops{})) {};
template <class N, class S, class L, class O, class... Ms>
struct ModelVerdict<ModelFault::no_state_mean, N, S, L, O, Ms...>
    : CheckKernel<StateMean, typename S::device> {};

// Errors about data, for the member functions of Model.
template <class D>
struct CheckBatched {
  static_assert(BatchedDataset<D>,
                "lockstep::Model: the data are not batched; end the pipeline with ls::batch(n)");
};
template <class D>
struct CheckFields {
  static_assert(is_labeled<D>,
                "lockstep::Model: the model reads one real-valued feature and one target of an "
                "example; leave out the other fields of the data");
};
template <class D, class Target>
struct CheckTargets {
  static_assert(std::same_as<target_of<D>, Target> || std::integral<Target>,
                "lockstep::Model: the loss expects real-valued targets, but the data have class "
                "labels; use SparseCategoricalCrossentropy, or targets of type float");
  static_assert(std::same_as<target_of<D>, Target> || !std::integral<Target>,
                "lockstep::Model: the loss expects class labels, but the data have real-valued "
                "targets; use CategoricalCrossentropy for one-hot targets, MeanSquaredError for "
                "numbers, or labels of type std::int32_t");
};

/// Stands for a missing argument of `ls::Model`.
struct Missing {};

/// Whether an argument converts to a span of T, such as std::vector<T>.
template <class Given, class T>
inline constexpr bool is_in_memory = std::convertible_to<const Given&, std::span<const T>>;
template <class T, class... Given>
struct NotInMemory {
  static_assert(always_false<T>,
                "lockstep::Model: values in memory must have the device's element type T (float; "
                "double on Reference<double>), labels std::int32_t; copy them into a std::vector");
};

/// Batched data whose targets have the loss' target type.
template <class D, class Target>
concept DataFor = BatchedDataset<D> && is_labeled<D> && std::same_as<target_of<D>, Target>;

/// Emits the error for data that do not fit.
template <class D, class Target, bool = BatchedDataset<D>>
struct DataVerdict {
  static_assert(sizeof(CheckBatched<D>) > 0);
};
template <class D, class Target>
struct DataVerdict<D, Target, true> {
  static_assert(sizeof(CheckFields<D>) > 0 &&
                (!is_labeled<D> || sizeof(CheckTargets<D, Target>) > 0));
};
/// The second argument of `fit`, if it is neither a data set nor options.
template <class Given>
struct CheckValidation {
  static_assert(!std::is_arithmetic_v<Given>,
                "lockstep::Model: the second argument of fit is a number; write {.epochs = 3}");
};
template <class Given, class Target>
struct ValidationVerdict : DataVerdict<Given, Target> {};
template <class Given, class Target>
  requires std::is_arithmetic_v<Given>
struct ValidationVerdict<Given, Target> : CheckValidation<Given> {};

template <class D, class Target>
inline constexpr bool explained = sizeof(DataVerdict<D, Target>) > 0;

}  // namespace lockstep::detail
