/// \file
/// What must be equal in all processes of a job, as fields with a name and a value. Invariant:
/// equal models give equal text, on any machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/data/operations/class_weights.hpp"
#include "lockstep/metrics/weighted.hpp"
#include "lockstep/training/checks/describe_layers.hpp"
#include "lockstep/training/fit_options.hpp"
#include "lockstep/training/step/updates.hpp"

namespace lockstep::detail {

/// The numbers of a loss or an optimizer; those that it does not tell by `numbers()` are not
/// compared.
template <class N>
std::string describe_numbers(const N& named) {
  std::string result;
  if constexpr (requires { named.numbers(); })
    for (const auto& [name, value] : named.numbers())
      result += fmt::format(", {} {}", name, json_number(value));
  return result;
}

/// What all optimizers can be told, as far as it was told.
LOCKSTEP_COLD_DECL std::string describe_update_options(double weight_decay,
                                                       const UpdateOptions& with);

template <class O>
std::string describe_optimizer(const O& optimizer) {
  std::string result = fmt::format("{}, rate {}", O::name, json_number(optimizer.learning_rate(0)));
  if constexpr (requires { optimizer.learning_rate.description(); })
    if (const std::string& schedule = optimizer.learning_rate.description(); !schedule.empty())
      result += fmt::format(" by {}", schedule);
  return result + describe_numbers(optimizer) +
         describe_update_options(weight_decay_of(optimizer), options_of(optimizer));
}

template <class L>
std::string describe_loss(const L& loss) {
  std::string result(L::name);
  if constexpr (requires { loss.from_logits; })
    result += loss.from_logits ? ", from logits" : ", from probabilities";
  return result + describe_numbers(loss);
}

/// A metric; MeanOf is told by its loss, Weighted by its metric.
template <class M>
std::string describe_metric(const M& metric) {
  if constexpr (is_weighted_metric<M>)
    return "weighted " + describe_metric(metric.metric);
  else if constexpr (requires { metric.loss; })
    return "mean of " + describe_loss(metric.loss);
  else
    return std::string(M::name) + describe_numbers(metric);
}

/// How a build rounds: each replica updates its weights by itself, and two that round differently
/// drift apart.
LOCKSTEP_DECL std::string describe_arithmetic(bool fast_math, bool fused,
                                              std::string_view compiler);
/// Of the library's definitions, the updates of its devices among them: in the compiled form they
/// have flags of their own.
LOCKSTEP_DECL std::string arithmetic_of_library();
/// Of this unit.
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

LOCKSTEP_COLD_DECL void add_field(Signature& to, const char* name, std::string value);

/// Compared when a model is made. `values`: what it begins with.
template <class Net, class D, class L, class O, class... Ms>
[[gnu::cold]] Signature model_signature(std::uint64_t seed, std::size_t virtual_shards,
                                        const L& loss, const O& optimizer,
                                        const std::tuple<Ms...>& metrics,
                                        const ValueBytes<const std::byte>& values) {
  std::string of_metrics;
  const auto add = [&](const auto& metric) {
    of_metrics += (of_metrics.empty() ? "" : "; ") + describe_metric(metric);
  };
  std::apply([&](const auto&... metric) { (add(metric), ...); }, metrics);
  Signature fields;
  add_field(fields, "input", to_string(Net::input_shape));
  add_field(fields, "output", to_string(Net::output_shape));
  add_field(fields, "layers", describe_layers<Net>());
  add_field(fields, "work of an example", std::to_string(Net::graph.flops) + " FLOP");
  add_field(fields, "device", std::string(D::name) + " " + std::string(D::precision));
  add_field(fields, "loss", describe_loss(loss));
  add_field(fields, "optimizer", describe_optimizer(optimizer));
  add_field(fields, "metrics", of_metrics);
  add_field(fields, "seed", std::to_string(seed));
  add_field(fields, "virtual shards", std::to_string(virtual_shards));
  add_field(fields, "arithmetic", arithmetic_of_build());
  add_field(fields, "the library's arithmetic", arithmetic_of_library());
  // After the seed, which they follow from.
  add_field(fields, "initial values", describe_values(named_parameters<Net>(), values));
  return fields;
}

/// What of data is compared.
struct DescribedData {
  std::optional<std::uint64_t> examples;
  std::size_t batch;
  bool is_weighted;
  std::uint64_t order;  ///< differs, in all likelihood, if a pass begins with other examples
};

template <class Data>
DescribedData described(const Data& data) {
  auto order = data.indices(Pass{});
  std::uint64_t sum = 0;
  for (int i = 0; i < 64; ++i) {
    const auto index = order.next();
    if (!index) break;
    sum = mix(sum, *index);
  }
  return {data.size(), data.batch_size(), WeightedDataset<Data>, sum};
}

LOCKSTEP_COLD_DECL std::string describe_validation(std::optional<std::uint64_t> examples,
                                                   std::size_t batch, bool is_weighted,
                                                   const FitOptions& options);
template <class Validation>
std::string describe_validation(const Validation& data, const FitOptions& options) {
  if constexpr (requires { data.batch_size(); })
    return describe_validation(data.size(), data.batch_size(), WeightedDataset<Validation>,
                               options);
  else
    return "none";
}

/// Compared when `fit` begins. `validation`: its text.
LOCKSTEP_COLD_DECL Signature fit_signature(const DescribedData& train, std::string validation,
                                           const FitOptions& options, std::uint64_t first_step,
                                           std::uint64_t first_pass, double rate, bool is_rate_set);

/// Compared when `evaluate` or `predict` begins.
LOCKSTEP_COLD_DECL Signature data_signature(const DescribedData& data,
                                            std::optional<std::uint64_t> steps);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/checks/model_signature.ipp"
#endif
