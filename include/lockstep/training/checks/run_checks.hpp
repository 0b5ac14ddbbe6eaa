/// \file
/// What `fit`, `evaluate` and `predict` check of their options and data. Invariant: all of it is
/// checked before the first step, but labels, which are checked batch by batch.
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

/// \throws UsageError if a layer cannot be computed slice by slice.
template <class Net, class D>
void check_slices(std::size_t virtual_shards) {
  constexpr auto& plan = PlanOf<Net, D>::plan;
  if constexpr (exists(plan.exchanges)) {
    constexpr auto& step = plan.step[plan.exchanges];
    if (virtual_shards > 0)
      throw UsageError(
          "virtual_shards: layer {} exchanges numbers between replicas within a step, so slices "
          "cannot be computed one after the other; remove it, or virtual_shards",
          layer_name(step.name, step.ordinal));
  }
}

LOCKSTEP_COLD_DECL void check_options(const FitOptions& o);

/// Examples in memory. \throws UsageError if the last one is not whole.
template <class Net, class T>
TensorView<const T> examples_of(const char* call, std::span<const T> x) {
  constexpr std::size_t size = Net::input_shape.size();
  if (x.size() % size != 0)
    throw UsageError(
        "{}: {} numbers are not a whole number of examples of shape {}, {} numbers each; check "
        "what you pass",
        call, x.size(), to_string(Net::input_shape), size);
  return {x.data(), x.size() / size, Net::input_shape};
}

LOCKSTEP_COLD_DECL void check_shape(const char* what, Shape found, Shape expected,
                                    const char* remedy);

/// Examples of a shape that the network takes.
template <class Net, BatchedDataset Data>
void check_examples(const Data& data) {
  check_shape("examples", data.shape(), Net::input_shape, "change Input<...> or the data");
}

/// A metric reads the loss' targets: they are of one size. \throws UsageError if not.
LOCKSTEP_COLD_DECL void check_metric_targets(std::string_view metric, std::size_t read,
                                             std::string_view loss, std::size_t given);

/// A metric of a model with loss L on device D. \throws UsageError if it reads more of a target
/// than the loss does, or weights that its kernel does not know.
template <class Net, class D, class L, class M>
void check_metric(const M& metric) {
  const auto op = metric.template op<typename L::target_type>(Net::output_shape);
  if constexpr (requires { op.target_size(); })
    check_metric_targets(M::name, op.target_size(), L::name,
                         L::target_shape(Net::output_shape).size());
  if constexpr (is_weighted_metric<M> && !Weighs<std::remove_const_t<decltype(op)>, D>)
    throw UsageError(
        "metric {}: its kernel does not read weights; give 'example' a fourth parameter, 'double "
        "weight', or leave Weighted out",
        M::name);
}

/// Data with weights for loss L on device D. \throws UsageError if its kernel, a user's own, does
/// not know them.
template <class Net, class D, class L>
void check_weighs() {
  using Op = std::remove_cvref_t<decltype(std::declval<const L&>().op(Net::output_shape))>;
  if constexpr (!Weighs<Op, D>)
    throw UsageError(
        "weights: the loss {} has a kernel that does not read them; let it read io.weight and say "
        "so by 'weighs', or leave the weights out",
        L::name);
}

/// \throws UsageError if there is none; `what` begins the message: "fit: the training".
LOCKSTEP_COLD_DECL void check_not_empty(std::optional<std::uint64_t> examples, const char* what);

/// Examples for the network and targets for the loss; `what` as in check_not_empty.
template <class Net, class L, BatchedDataset Data>
void check_data(const Data& data, const char* what) {
  check_examples<Net>(data);
  check_shape("targets", data.target_shape(), L::target_shape(Net::output_shape),
              "change the last layer or the targets");
  check_not_empty(data.size(), what);
}

/// Weights of classes of targets of this shape. \throws UsageError if the targets cannot name them.
LOCKSTEP_COLD_DECL void check_class_weights(const ClassWeights& weights, const Shape& target,
                                            bool are_labels, int outputs);
template <class Net, class L>
void check_class_weights(const ClassWeights& weights) {
  check_class_weights(weights, L::target_shape(Net::output_shape),
                      std::same_as<typename L::target_type, std::int32_t>,
                      Net::output_shape.channels());
}

/// Weights of a batch in memory; none at all are right too. \throws UsageError unless there is a
/// finite one for each of `examples`.
template <class T>
void check_weights(const char* call, std::span<const T> weights, std::size_t examples) {
  if (!weights.empty() && weights.size() != examples)
    throw UsageError("{}: {} examples need as many weights, not {}", call, examples,
                     weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (!is_weight(static_cast<double>(weights[i])))
      throw UsageError("{}: example {} has weight {}; weights are finite numbers, about 1", call, i,
                       weights[i]);
}

/// Data of so many examples, or without an end, of which `steps` are wanted, or all.
LOCKSTEP_COLD_DECL void check_ends(const char* call, std::optional<std::uint64_t> examples,
                                   std::optional<std::uint64_t> steps);

/// Steps of a pass; nothing if that is not known.
LOCKSTEP_COLD_DECL std::optional<std::uint64_t> step_count(std::optional<std::uint64_t> examples,
                                                           std::size_t batch,
                                                           std::optional<std::uint64_t> steps);

/// Number of the pass that a `fit` begins with, after `begun` passes: see
/// FitOptions::initial_epoch.
LOCKSTEP_DECL std::uint64_t first_pass(std::uint64_t begun, const FitOptions& options);

/// Examples of the epochs that `initial_epoch` leaves out, with `steps_per_epoch`.
LOCKSTEP_DECL std::uint64_t examples_before(std::uint64_t batch, const FitOptions& options);

/// A label outside of the model's outputs would be read outside of memory. `first`: place of y[0]
/// in the batch.
LOCKSTEP_DECL void check_labels(const std::int32_t* y, std::size_t count, std::size_t first,
                                int classes);
/// Other targets may be any number.
template <class Target>
void check_labels(const Target*, std::size_t, std::size_t, int) {}

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/checks/run_checks.ipp"
#endif
