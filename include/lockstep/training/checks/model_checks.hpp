/// \file
/// Compile-time requirements on the arguments of `ls::Model` and on its data, one error message
/// each. Invariants: the verdict is computed as a type; only a faulty model instantiates it. It
/// then fails one static_assert, on which nothing else depends, so the compiler prints one error.
///
///     ModelVerdict<Net, S, L, O, Ms...>
///         Sound: the constrained Model<...> is chosen
///         other: the primary Model<...> instantiates it: one static_assert
#pragma once

#include <concepts>
#include <span>
#include <type_traits>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/concepts/loss.hpp"
#include "lockstep/concepts/metric.hpp"
#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/concepts/outputs.hpp"
#include "lockstep/concepts/state_mean.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/model/engine.hpp"

namespace lockstep::detail {

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

// The errors of a model's arguments. Each is instantiated only where its assertion fails.
template <class N>
struct NoNetwork {
  static_assert(Network<N>,
                "lockstep::Model: the first argument is not a network; derive it from "
                "Sequential<Input<...>, layers...>");
};
template <class N>
struct NoLayer {
  static_assert(N::graph.nodes > 0, "lockstep::Model: the model has no layer; add one after Input");
};
template <class S>
struct NoStrategy {
  static_assert(
      Strategy<S>,
      "lockstep::Model: the second argument is not a strategy; write ls::OneDevice<ls::Cpu>{}");
};
template <class L>
struct NoLoss {
  static_assert(Loss<L>,
                "lockstep::Model: the third argument is not a loss; write "
                "ls::SparseCategoricalCrossentropy{...}");
};
template <class O>
struct NoOptimizer {
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
template <class N, class L>
struct LossDoesNotFit {
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
template <class X>
struct NotByRows {
  static_assert(always_false<X>,
                "lockstep::InBlocks: 'X', the loss or a metric, does not compute each row of the "
                "output alone; leave out InBlocks, or use one that does");
};
template <class D>
struct NoBlocks {
  static_assert(HostDevice<D>,
                "lockstep::InBlocks: device 'D' does not compute the output in blocks; leave out "
                "InBlocks, or use ls::Cpu");
};
/// A kernel without a pass: exactly one of the assertions fails.
template <class Op, class D, Passes Found>
struct NoPass {
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
/// The verdict on a model without fault, and on one whose network has already printed its error.
struct Sound {};
struct Explained {};

/// The error for the first argument that is not a metric, or does not fit.
template <class M, class... Ms>
constexpr auto no_metric() {
  if constexpr (Metric<M>)
    return no_metric<Ms...>();
  else
    return std::type_identity<NoMetric<M>>();
}
template <class Target, Shape output, class M, class... Ms>
constexpr auto metric_does_not_fit() {
  if constexpr (MetricOf<M, Target, output>)
    return metric_does_not_fit<Target, output, Ms...>();
  else
    return std::type_identity<MetricDoesNotFit<M, Target>>();
}
/// The error of a missing kernel names the op and the device.
template <class D, class TheOp>
constexpr auto no_kernel(List<TheOp>) {
  return std::type_identity<CheckKernel<TheOp, D>>();
}
template <auto& plan, class D, class... Ops>
constexpr auto no_pass(List<Ops...>) {
  using Op = At<first_without_pass<plan, D>(List<Ops...>{}), Ops...>;
  return std::type_identity<NoPass<Op, D, passes_of<plan, Op, D>()>>();
}

/// Whether a loss or a metric is computed from single rows of an output of shape `out`, and accepts
/// them alone.
template <class Op, Shape out>
inline constexpr bool is_by_single_rows =
    (RowwiseLoss<Op> || RowwiseMetric<Op>) && (HasRows<Op> || positions_of(out).size() == 1);
template <class L, Shape out>
inline constexpr bool loss_is_by_rows =
    is_by_single_rows<std::remove_cvref_t<decltype(std::declval<const L&>().op(out))>, out> &&
    L::accepts(shape(out.channels())) &&
    weighed_positions<L>(out).size() == positions_of(out).size();
template <class M, class Target, Shape out>
inline constexpr bool metric_is_by_rows =
    is_by_single_rows<
        std::remove_cvref_t<decltype(std::declval<const M&>().template op<Target>(out))>, out> &&
    M::template accepts<Target>(shape(out.channels()));
template <class Target, Shape out, class M, class... Ms>
constexpr auto metric_not_by_rows() {
  if constexpr (!metric_is_by_rows<M, Target, out>)
    return std::type_identity<NotByRows<M>>();
  else if constexpr (sizeof...(Ms) > 0)
    return metric_not_by_rows<Target, out, Ms...>();
  else
    return std::type_identity<Sound>();
}
/// The first fault of a model whose network may end in InBlocks.
template <class N, class D, class L, class... Ms>
constexpr auto blocks_verdict() {
  if constexpr (!N::graph.ends_in_blocks())
    return std::type_identity<Sound>();
  else if constexpr (!HostDevice<D>)
    return std::type_identity<NoBlocks<D>>();
  else if constexpr (!loss_is_by_rows<L, N::output_shape>)
    return std::type_identity<NotByRows<L>>();
  else if constexpr (sizeof...(Ms) > 0)
    return metric_not_by_rows<typename L::target_type, N::output_shape, Ms...>();
  else
    return std::type_identity<Sound>();
}

/// The first fault of a model with a loss or metrics of outputs by name; in heads.hpp, which
/// <lockstep/heads.hpp> includes.
template <class N, class S, class L, class O, class... Ms>
struct HeadsVerdict;

/// The first fault of a model. Each check relies on the ones before it, so the order matters.
template <class N, class S, class L, class O, class... Ms>
constexpr auto verdict_of() {
  if constexpr (!Network<N>) {
    return std::type_identity<NoNetwork<N>>();
  } else if constexpr (!N::valid) {
    return std::type_identity<Explained>();
  } else if constexpr (N::graph.nodes == 0) {
    return std::type_identity<NoLayer<N>>();
  } else if constexpr (!Strategy<S>) {
    return std::type_identity<NoStrategy<S>>();
  } else if constexpr (!Loss<L> && !BindsOutputs<L>) {
    return std::type_identity<NoLoss<L>>();
  } else if constexpr (!Optimizer<O>) {
    return std::type_identity<NoOptimizer<O>>();
  } else if constexpr (!(Metric<Ms> && ...)) {
    return no_metric<Ms...>();
  } else if constexpr (BindsOutputs<L> || (OfOutput<Ms> || ...)) {
    return HeadsVerdict<N, S, L, O, Ms...>::verdict();
  } else if constexpr (!L::accepts(N::output_shape)) {
    return std::type_identity<LossDoesNotFit<N, L>>();
  } else if constexpr (!(MetricOf<Ms, typename L::target_type, N::output_shape> && ...)) {
    return metric_does_not_fit<typename L::target_type, N::output_shape, Ms...>();
  } else if constexpr (!std::same_as<typename decltype(blocks_verdict<N, typename S::device, L,
                                                                      Ms...>())::type,
                                     Sound>) {
    return blocks_verdict<N, typename S::device, L, Ms...>();
  } else {
    using D = typename S::device;
    using Plan = PlanOf<N, D>;
    using Missing = decltype(first_without_kernel<D>(OpsOfModel<N, S, L, O, Ms...>{}));
    if constexpr (!std::is_same_v<Missing, List<void>>)
      return no_kernel<D>(Missing());
    else if constexpr (first_without_pass<Plan::plan, D>(typename Plan::ops{}) < Plan::ops::size)
      return no_pass<Plan::plan, D>(typename Plan::ops{});
    else if constexpr (Plan::plan.updates_state && !HasKernel<StateMean, D>)
      return std::type_identity<CheckKernel<StateMean, D>>();
    else
      return std::type_identity<Sound>();
  }
}
template <class... OfModel>
using ModelVerdict = typename decltype(verdict_of<OfModel...>())::type;

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
