/// \file
/// The signature of a model, and of a call of fit, evaluate or predict: everything that must be
/// equal in all processes of a job, as named text fields. The strategy's `agree` compares them and
/// names the first field that differs. Invariant: equal models give equal text on any machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/data/operations/class_weights.hpp"
#include "lockstep/metrics/weighted.hpp"
#include "lockstep/training/checks/describe_data.hpp"
#include "lockstep/training/checks/describe_layers.hpp"
#include "lockstep/training/export/op_values.hpp"
#include "lockstep/training/fit_options.hpp"
#include "lockstep/training/step/any_replicas.hpp"
#include "lockstep/training/step/updates.hpp"

namespace lockstep::detail {

/// The options of a loss, metric or optimizer: what its `numbers()` lists or, without that
/// function, the members of a plain aggregate, for an optimizer those of its op, since its own may
/// be schedules. Options of other types are compared only if they have `numbers()`.
template <class N>
std::string describe_numbers(const N& named) {
  std::string result;
  if constexpr (requires { named.numbers(); }) {
    for (const auto& [name, value] : named.numbers())
      result += format_text(", {} {}", name, json_number(value));
  } else if constexpr (requires { named.op(1.0, 1); }) {
    result = describe_members(op_value(named.op(1.0, 1)));
  } else if constexpr (!std::is_empty_v<N>) {
    constexpr bool is_described = sizeof(N) == 1 && requires { named.from_logits; };
    if constexpr (!is_described) result = describe_members(op_value(named));
  }
  return result;
}

/// The options that all optimizers share, without those that have their default.
LOCKSTEP_COLD_DECL std::string describe_update_options(double weight_decay,
                                                       const UpdateOptions& with);

/// "sgd, rate 0.1, momentum 0.9".
template <class O>
std::string describe_optimizer(const O& optimizer) {
  std::string result = format_text("{}, rate {}", O::name, json_number(optimizer.learning_rate(0)));
  if constexpr (requires { optimizer.learning_rate.description(); })
    if (const std::string& schedule = optimizer.learning_rate.description(); !schedule.empty())
      result += format_text(" by {}", schedule);
  if constexpr (requires { optimizer.exclude_layers; })
    for (const std::string& text : optimizer.exclude_layers)
      result += format_text(", AdamW for '{}'", text);
  return result + describe_numbers(optimizer) +
         describe_update_options(weight_decay_of(optimizer), options_of(optimizer));
}

/// "sparse_categorical_crossentropy, from logits".
template <class L>
std::string describe_loss(const L& loss) {
  if constexpr (requires { typename L::Step; }) {
    std::string all;
    loss.each([&all](auto, const auto& head) {
      all += format_text("{}{}: {}, weight {}{}", all.empty() ? "" : "; ", head.output,
                         describe_loss(head.loss), json_number(head.weight),
                         head.masks ? ", masks" : "");
      for (const auto& [number, weight] : head.class_weight)
        all += format_text(", class {} {}", number, json_number(weight));
    });
    return all;
  } else {
    std::string result(L::name);
    if constexpr (requires { loss.from_logits; })
      result += loss.from_logits ? ", from logits" : ", from probabilities";
    return result + describe_numbers(loss);
  }
}

/// The name and numbers of a metric. MeanOf is described by its loss, Weighted by its metric.
template <class M>
std::string describe_metric(const M& metric) {
  if constexpr (is_weighted_metric<M>)
    return "weighted " + describe_metric(metric.metric);
  else if constexpr (requires { M::head; })
    return std::string(M::name) + describe_numbers(metric.metric);
  else if constexpr (requires { metric.loss; })
    return "mean of " + describe_loss(metric.loss);
  else
    return std::string(M::name) + describe_numbers(metric);
}

/// How a build rounds. Replicas update their weights independently, so two processes that round
/// differently would drift apart.
LOCKSTEP_DECL std::string describe_arithmetic(bool fast_math, bool fused,
                                              std::string_view compiler);
/// Arithmetic of the library's definitions, including its devices' update kernels. Compiled with
/// the library's own flags in the compiled form.
LOCKSTEP_DECL std::string arithmetic_of_library();
/// Arithmetic of the translation unit that includes this header.
inline std::string arithmetic_of_build() {
#ifdef __FAST_MATH__
  constexpr bool fast_math = true;
#else
  constexpr bool fast_math = false;
#endif
#if defined(__FMA__) || defined(__FP_FAST_FMA) || defined(__aarch64__)
  constexpr bool fused = true;
#else
  constexpr bool fused = false;
#endif
  return describe_arithmetic(fast_math, fused, __VERSION__);
}

/// Out of line, since model_signature is instantiated for each model.
LOCKSTEP_COLD_DECL void add_field(Signature& to, const char* name, std::string value);

/// The signature of a model: what processes compare when they create it, without the initial values
/// of its parameters.
template <class Net, class D, class L, class O, class Metrics>
[[gnu::cold]] Signature model_signature(std::uint64_t seed, std::size_t virtual_shards,
                                        const L& loss, const O& optimizer, const Metrics& metrics) {
  std::string of_metrics;
  const auto add = [&](const auto& metric) {
    of_metrics += (of_metrics.empty() ? "" : "; ") + describe_metric(metric);
  };
  std::apply([&](const auto&... metric) { (add(metric), ...); }, metrics);
  Signature fields;
  add_field(fields, "input", to_string(Net::input_shape));
  add_field(fields, "output", to_string(Net::output_shape));
  add_field(fields, "layers", describe_layers<Net>());
  add_field(fields, "FLOPs per example", std::to_string(Net::graph.flops));
  add_field(fields, "device", std::string(D::name) + " " + std::string(D::precision));
  add_field(fields, "loss", describe_loss(loss));
  add_field(fields, "optimizer", describe_optimizer(optimizer));
  add_field(fields, "metrics", of_metrics);
  add_field(fields, "seed", std::to_string(seed));
  add_field(fields, "virtual shards", std::to_string(virtual_shards));
  add_field(fields, "arithmetic", arithmetic_of_build());
  add_field(fields, "the library's arithmetic", arithmetic_of_library());
  return fields;
}

/// A validation set as text: size, batch, frequency, steps; "none" without one.
LOCKSTEP_COLD_DECL std::string describe_validation(const std::optional<DescribedData>& data,
                                                   const FitOptions& options);

/// The signature that processes compare when `fit` begins.
LOCKSTEP_COLD_DECL Signature fit_signature(const DescribedData& train,
                                           const std::optional<DescribedData>& validation,
                                           const FitOptions& options, std::uint64_t first_step,
                                           std::uint64_t first_pass, double rate, bool is_rate_set);

/// The writes of a fit's FencedCallbacks; "none" without any.
LOCKSTEP_COLD_DECL std::string describe_writes(const FitOptions& options);

/// Compares a call's fields across processes, then removes the one about generated examples, whose
/// difference is a warning. Collective. \throws UsageError in all processes if another field
/// differs.
LOCKSTEP_COLD_DECL void compare_signatures(AnyJob& replicas, std::string_view part,
                                           Signature& fields);
/// Removes the field about generated examples. \returns its value, empty without one.
LOCKSTEP_COLD_DECL std::string remove_generated(Signature& fields);

/// Compares the signature of a process that joins an elastic job within `fit` with that of the job,
/// except for what `fit` began with. \throws UsageError.
LOCKSTEP_COLD_DECL void check_joins(const Signature& mine, const Signature& of_job);

/// The signature that processes compare when `evaluate` begins, or `predict`, which reads no
/// targets.
LOCKSTEP_COLD_DECL Signature data_signature(const DescribedData& data,
                                            std::optional<std::uint64_t> steps,
                                            bool has_targets = true);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/checks/model_signature.ipp"
#endif
