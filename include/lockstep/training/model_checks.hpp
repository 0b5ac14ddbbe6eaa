/// \file
/// What `ls::Model` and its data must satisfy, one sentence each. Invariant: a check that fails
/// prints its sentence and nothing else: the code that depends on it is not instantiated.
#pragma once

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/concepts/loss.hpp"
#include "lockstep/concepts/metric.hpp"
#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/model/plan.hpp"

namespace lockstep::detail {

template <class N>
struct CheckNetwork {
  static_assert(Network<N>,
                "lockstep::Model: the first argument is no model; derive it from "
                "Sequential<Input<...>, layers...>");
};
template <class S>
struct CheckStrategy {
  static_assert(
      Strategy<S>,
      "lockstep::Model: the second argument is no strategy; write ls::OneDevice<ls::Cpu>{}");
};
template <class L>
struct CheckLoss {
  static_assert(Loss<L>,
                "lockstep::Model: the third argument is no loss; write "
                "ls::SparseCategoricalCrossentropy{...}");
};
template <class O>
struct CheckOptimizer {
  static_assert(Optimizer<O>,
                "lockstep::Model: the fourth argument is no optimizer; write ls::SGD{...}");
};
template <class M>
struct CheckMetric {
  static_assert(
      Metric<M>,
      "lockstep::Model: an argument after the optimizer is no metric; write ls::Accuracy{}");
};
template <class L, Shape Out>
struct CheckLossFits {
  static_assert(L::accepts(Out),
                "lockstep::Model: the loss does not fit the model's output; end the model with the "
                "layer that the loss "
                "expects, such as Flatten and Dense<classes>");
};
template <class M, class Target, Shape Out>
struct CheckMetricFits {
  static_assert(MetricOf<M, Target, Out>,
                "lockstep::Model: a metric does not fit the model's output or the loss' targets; "
                "leave it out");
};
template <class N>
struct CheckHasLayers {
  static_assert(N::graph.nodes > 0, "lockstep::Model: the model has no layer; add one after Input");
};

/// The first failing sentence is printed; the answer says whether all hold.
template <class N, class S, class L, class O, class... Ms>
constexpr bool model_is_sound() {
  if constexpr (!Network<N>) {
    return sizeof(CheckNetwork<N>) == 0;
  } else if constexpr (!N::valid) {
    return false;  // its own sentence is printed
  } else if constexpr (N::graph.nodes == 0) {
    return sizeof(CheckHasLayers<N>) == 0;
  } else if constexpr (!Strategy<S>) {
    return sizeof(CheckStrategy<S>) == 0;
  } else if constexpr (!Loss<L>) {
    return sizeof(CheckLoss<L>) == 0;
  } else if constexpr (!Optimizer<O>) {
    return sizeof(CheckOptimizer<O>) == 0;
  } else if constexpr (!(Metric<Ms> && ...)) {
    return (sizeof(CheckMetric<Ms>) + ... + 0u) == 0;
  } else if constexpr (!L::accepts(N::output_shape)) {
    return sizeof(CheckLossFits<L, N::output_shape>) == 0;
  } else if constexpr (!(MetricOf<Ms, typename L::target_type, N::output_shape> && ...)) {
    return (sizeof(CheckMetricFits<Ms, typename L::target_type, N::output_shape>) + ... + 0u) == 0;
  } else {
    return runs_on<N, typename S::device>();
  }
}

template <class D>
struct CheckBatched {
  static_assert(BatchedDataset<D>,
                "lockstep::Model: the data are no batches; end the pipeline with ls::batch(n)");
};
template <class D, class Target>
struct CheckTargets {
  static_assert(std::same_as<typename D::target_type, Target>,
                "lockstep::Model: the loss takes labels and the data have real values, or the "
                "reverse; change the loss or "
                "the targets");
};

template <class D, class Target>
constexpr bool data_fit() {
  if constexpr (!BatchedDataset<D>)
    return sizeof(CheckBatched<D>) == 0;
  else if constexpr (!std::same_as<typename D::target_type, Target>)
    return sizeof(CheckTargets<D, Target>) == 0;
  else
    return true;
}

}  // namespace lockstep::detail
