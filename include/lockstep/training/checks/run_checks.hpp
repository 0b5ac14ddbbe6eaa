/// \file
/// The checks of `fit`, `evaluate` and `predict` on their options and data. Invariant: everything
/// is checked before the first step, except labels, which are checked batch by batch.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/loss.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/count.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/core/tensor_view.hpp"
#include "lockstep/data/operations/class_weights.hpp"
#include "lockstep/metrics/weighted.hpp"
#include "lockstep/model/plan.hpp"
#include "lockstep/training/fit_options.hpp"
#include "lockstep/training/parameters.hpp"

namespace lockstep::detail {

/// Checks virtual shards against the model. \throws UsageError if a layer cannot be computed slice
/// by slice.
template <class Net, class D>
void check_slices(std::size_t virtual_shards) {
  constexpr auto& plan = PlanOf<Net, D>::plan;
  if constexpr (exists(plan.exchanges)) {
    constexpr auto& step = plan.step[plan.exchanges];
    if (virtual_shards > 0)
      throw UsageError(
          "virtual_shards: layer {} communicates between replicas within a step, so slices cannot "
          "be computed one after the other; remove the layer or virtual_shards",
          layer_name(step));
  }
}

/// Checks the counts in the options. \throws UsageError for a value below its minimum.
LOCKSTEP_COLD_DECL void check_options(const FitOptions& o);
/// The same, and that an epoch ends. `examples`: nullopt if the data never end. \returns the
/// options.
LOCKSTEP_COLD_DECL const FitOptions& checked_options(const FitOptions& options,
                                                     std::optional<std::uint64_t> examples);

/// Examples in memory, (examples, input). \throws UsageError if the last example is incomplete.
template <class Net, class T>
TensorView<const T> examples_of(const char* call, std::span<const T> x) {
  constexpr std::size_t size = Net::input_shape.size();
  if (x.size() % size != 0)
    throw UsageError(
        "{}: {} values are not a whole number of examples of shape {}, which have {} values each; "
        "pass complete examples",
        call, x.size(), to_string(Net::input_shape), size);
  return {x.data(), x.size() / size, Net::input_shape};
}

/// \throws UsageError, ending in `remedy`, if the shapes differ. `what` names the data.
LOCKSTEP_COLD_DECL void check_shape(const char* what, Shape found, Shape expected,
                                    const char* remedy);

/// \throws UsageError unless the examples have the network's input shape.
template <class Net, BatchedDataset Data>
void check_examples(const Data& data) {
  check_shape("examples", data.shape(), Net::input_shape, "change Input<...> or the data");
}

/// \throws UsageError unless the metric reads as many values per target as the loss' targets have.
LOCKSTEP_COLD_DECL void check_metric_targets(std::string_view metric, std::size_t read,
                                             std::string_view loss, std::size_t given);

/// \throws UsageError if a loss ignores a label that is not a class of the model's outputs, and
/// that a metric does not ignore.
LOCKSTEP_COLD_DECL void check_ignored(std::string_view metric,
                                      const std::optional<std::int32_t>& of_metric,
                                      const std::optional<std::int32_t>& of_loss, int classes,
                                      bool may_ignore);
/// \throws UsageError if a metric ignores a label although the targets of the loss are real.
LOCKSTEP_COLD_DECL void check_ignores_labels(std::string_view metric,
                                             const std::optional<std::int32_t>& of_metric,
                                             std::string_view loss);
/// \throws UsageError if a weighted metric does not have a row for each weight of an example.
LOCKSTEP_COLD_DECL void check_metric_weights(std::string_view metric, std::size_t rows,
                                             std::string_view loss, Shape positions);

/// Stands for a network, in checks of one of its outputs.
template <Shape shape>
struct OutputOf {
  static constexpr Shape output_shape = shape;
};
/// Checks a metric against a loss and device D. \throws UsageError if the metric and the loss read
/// targets of different sizes or ignore different labels, or if the metric is weighted and its
/// kernel ignores weights.
template <class Net, class D, class L, class M>
void check_metric(const M& metric, const L& loss) {
  if constexpr (requires { M::head; }) {
    check_metric<OutputOf<M::head.shape>, D>(metric.metric,
                                             loss.template head<M::head.output>().loss);
  } else {
    const auto op = metric.template op<typename L::target_type>(Net::output_shape);
    if constexpr (std::same_as<typename L::target_type, std::int32_t>)
      check_ignored(M::name, ignored_class(op), ignored_class(loss.op(Net::output_shape)),
                    Net::output_shape.channels(), IgnoresClass<std::remove_const_t<decltype(op)>>);
    else
      check_ignores_labels(M::name, ignored_class(op), L::name);
    if constexpr (is_weighted_metric<M>)
      check_metric_weights(M::name, rows_of_example(op), L::name,
                           weighed_positions<L>(Net::output_shape));
    if constexpr (requires { op.target_size(); })
      check_metric_targets(M::name, op.target_size(), L::name,
                           L::target_shape(Net::output_shape).size());
    if constexpr (is_weighted_metric<M> && !Weighs<std::remove_const_t<decltype(op)>, D>)
      throw UsageError(
          "metric {}: its kernel does not read sample weights; add a fourth parameter 'double "
          "weight' to 'example', or remove Weighted",
          M::name);
  }
}

/// Checks that loss L on device D supports sample weights. \throws UsageError for a custom kernel
/// that does not.
template <class Net, class D, class L>
void check_weighs() {
  using Op = std::remove_cvref_t<decltype(std::declval<const L&>().op(Net::output_shape))>;
  if constexpr (!Weighs<Op, D>)
    throw UsageError(
        "weights: the kernel of loss {} does not read sample weights; multiply by io.weight in the "
        "kernel and declare 'weighs' there, or remove the weights",
        L::name);
}

/// \throws UsageError if there are more `owners` of weights than trainable parameters.
LOCKSTEP_COLD_DECL void check_owners(std::size_t owners,
                                     std::span<const NamedParameter> parameters);

/// \throws UsageError if there are no examples; `what` begins the message: "fit: the training".
LOCKSTEP_COLD_DECL void check_not_empty(std::optional<std::uint64_t> examples, const char* what);

/// Checks examples against the network and targets against the loss; `what` as in check_not_empty.
template <class Net, class L, BatchedDataset Data>
void check_data(const Data& data, const char* what) {
  check_examples<Net>(data);
  constexpr Shape expected = L::target_shape(Net::output_shape);
  const Shape found = data.shape(target_field<Data>);
  check_shape(
      "targets", found, expected,
      found.rank < expected.rank
          ? "put Flatten or GlobalAveragePooling2D before the last layer, or change the "
            "targets"
      : found.rank > expected.rank
          ? "end the model with an output for each position, such as Conv2D<classes, 1>, or "
            "change the targets"
          : "change the last layer or the targets");
  if constexpr (has_weights<Data>)
    if (const Shape weights = data.shape(weight_field<Data>); weights.rank > 0)
      check_shape("weights", weights, weighed_positions<L>(Net::output_shape),
                  "give one weight per example, or one for each position of the loss");
  check_not_empty(data.size(), what);
}

/// Checks class weights against targets of this shape, with `weighed` positions that have a weight
/// each. `are_rows`: the last axis of real targets denotes a class at each position. \throws
/// UsageError if the targets do not denote a class, or if a class does not exist.
LOCKSTEP_COLD_DECL void check_class_weights(const ClassWeights& weights, const Shape& target,
                                            const Shape& weighed, bool are_labels, bool are_rows,
                                            int outputs);
template <class Net, class L>
void check_class_weights(const ClassWeights& weights) {
  if constexpr (requires { typename L::Step; })
    if (!weights.empty())
      throw UsageError(
          "fit: class_weight: the model has a loss for each output; set .class_weight of an "
          "ls::Head instead");
  using Op = std::remove_cvref_t<decltype(std::declval<const L&>().op(Net::output_shape))>;
  check_class_weights(weights, L::target_shape(Net::output_shape),
                      weighed_positions<L>(Net::output_shape),
                      std::same_as<typename L::target_type, std::int32_t>, is_by_rows<Op>,
                      Net::output_shape.channels());
}

/// Checks the sample weights of a batch in memory, which may be empty. \throws UsageError unless
/// there is one finite weight for each of `examples`, or for each of their `positions`.
template <class T>
void check_weights(const char* call, std::span<const T> weights, std::size_t examples,
                   std::size_t positions) {
  if (!weights.empty() && weights.size() != examples && weights.size() != examples * positions) {
    if (positions > 1)
      throw UsageError("{}: {} examples need {} weights, or {}, one for each position, not {}",
                       call, examples, examples, examples * positions, weights.size());
    throw UsageError("{}: {} examples need {} weights, not {}", call, examples, examples,
                     weights.size());
  }
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (!is_weight(static_cast<double>(weights[i])))
      throw UsageError("{}: example {} has weight {}; weights must be finite numbers, about 1",
                       call, weights.size() == examples ? i : i / positions, weights[i]);
}

/// Checks that a run over `examples` (nullopt: infinite data), limited to `steps` if given, ends.
/// \throws UsageError if not.
LOCKSTEP_COLD_DECL void check_ends(const char* call, std::optional<std::uint64_t> examples,
                                   std::optional<std::uint64_t> steps);

/// Steps of a pass; nullopt if unknown.
LOCKSTEP_COLD_DECL std::optional<std::uint64_t> step_count(std::optional<std::uint64_t> examples,
                                                           std::size_t batch,
                                                           std::optional<std::uint64_t> steps);

/// Number of the pass with which a `fit` begins, if the model has begun `begun` passes; see
/// FitOptions::initial_epoch.
LOCKSTEP_DECL std::uint64_t first_pass(std::uint64_t begun, const FitOptions& options);

/// Number of examples of the epochs that `initial_epoch` skips, with `steps_per_epoch`.
LOCKSTEP_DECL std::uint64_t examples_before(std::uint64_t batch, const FitOptions& options);

/// Checks labels: a kernel would use a label outside of [0, classes) as an index out of bounds.
/// y (count, target), except labels that are ignored. `first`: position of the first example in the
/// batch, for the message. \throws UsageError.
LOCKSTEP_DECL void check_labels(const std::int32_t* y, std::size_t count, std::size_t first,
                                int classes, const Shape& target = {},
                                const std::optional<std::int32_t>& ignored = {});

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/checks/run_checks.ipp"
#endif
