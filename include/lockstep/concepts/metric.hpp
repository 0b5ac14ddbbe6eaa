/// \file
/// The interface of metrics. Invariant: the state is a few doubles that start at zero and are
/// merged by addition, so a metric can be computed in any number of parts.
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>

#include "lockstep/concepts/copyable.hpp"
#include "lockstep/concepts/loss.hpp"

namespace lockstep {

/// The operands of one call of a metric kernel.
template <class D, class Target>
struct MetricIo {
  using T = typename D::real;
  typename D::Context& device;
  std::size_t count;
  const T* prediction;
  const target_as<Target, T>* target;
  double* state;              ///< += the contribution of these examples
  const T* weight = nullptr;  ///< (count, weights), sample weights; null: all 1
  std::size_t weights = 1;    ///< per example: 1, or the rows of an example
};

/// A metric declaration.
///
/// - `name`; `state_size`: doubles of state; `result(state)`: the value of the metric, 0 for an
///   empty state.
/// - `accepts<Target>(out)`: whether the metric supports outputs of this shape and such targets.
/// - `op<Target>(out)`: a plain value; Kernel<Op, Device> has `run(const Op&, const
///   MetricIo<Device, Target>&)`.
template <class M>
concept Metric = Copyable<M> && requires(const M& metric, const double* state) {
  { M::name } -> std::convertible_to<std::string_view>;
  { M::state_size } -> std::convertible_to<std::size_t>;
  { metric.result(state) } -> std::same_as<double>;
};

/// Whether a metric leaves out the padded steps of the output's mask: those with `reads_mask`, which
/// are Keras' means of a function.
template <class M>
inline constexpr bool reads_output_mask = requires { requires M::reads_mask; };

/// A metric that supports outputs of shape `Out` and targets of type `Target`.
template <class M, class Target, Shape Out>
concept MetricOf = Metric<M> && M::template accepts<Target>(Out) &&
                   requires(const M& m) { m.template op<Target>(Out); };

/// An op that adds each row to the state independently; one generic kernel per device computes all
/// such metrics.
template <class O>
concept RowwiseMetric = requires(const O& op, const double* p, double* state) {
  { op.size() } -> std::same_as<std::size_t>;
  { op.target_size() } -> std::same_as<std::size_t>;
  op.example(p, static_cast<const target_as<typename O::target_type, double>*>(nullptr), state);
};

/// A row-wise metric with sample weights: `example(p, t, state, weight)` adds `weight` times what
/// `example(p, t, state)` adds.
template <class O>
concept WeighableMetric =
    RowwiseMetric<O> && requires(const O& op, const double* p, double* state) {
      op.example(p, static_cast<const target_as<typename O::target_type, double>*>(nullptr), state,
                 1.0);
    };

/// Tag of a kernel that computes a loss and metrics of the same predictions in one pass:
/// Kernel<Scores, Device> has `run(loss op, LossIo, MetricCall...)`.
struct Scores {};

/// A metric's op and the operands of its call.
template <class Op, class D, class Target>
struct MetricCall {
  const Op& op;
  MetricIo<D, Target> io;
};

/// Whether device D computes this loss and these metrics in one pass.
template <class D, class Target, class LossOp, class... MetricOps>
concept ScoresTogether =
    sizeof...(MetricOps) > 0 &&
    HasKernel<Scores, D>&& requires(const LossOp& loss, const LossIo<D, Target>& io,
                                    const MetricCall<MetricOps, D, Target>&... metrics) {
      Kernel<Scores, D>::run(loss, io, metrics...);
    };

}  // namespace lockstep
