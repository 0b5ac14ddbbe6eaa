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
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/core/text.hpp"
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
      result += text({", ", name, " ", json_number(value)});
  return result;
}

/// What all optimizers can be told, as far as it was told.
LOCKSTEP_COLD_DECL std::string describe_update_options(double weight_decay,
                                                       const UpdateOptions& with);

template <class O>
std::string describe_optimizer(const O& optimizer) {
  std::string result = text({O::name, ", rate ", json_number(optimizer.learning_rate(0))});
  if constexpr (requires { optimizer.learning_rate.description(); })
    if (const std::string& schedule = optimizer.learning_rate.description(); !schedule.empty())
      result += text({" by ", schedule});
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

/// Compared when a model is made. `weights` and `state` are what it begins with.
template <class Net, class D, class L, class O, class... Ms>
[[gnu::cold]] Signature model_signature(std::uint64_t seed, std::size_t virtual_shards,
                                        const L& loss, const O& optimizer,
                                        const std::tuple<Ms...>& metrics,
                                        std::span<const typename D::real> weights,
                                        std::span<const typename D::real> state) {
  std::string of_metrics;
  const auto add = [&](const auto& metric) {
    of_metrics += (of_metrics.empty() ? "" : "; ") + describe_metric(metric);
  };
  std::apply([&](const auto&... metric) { (add(metric), ...); }, metrics);
  return {{"input", text({Net::input_shape})},
          {"output", text({Net::output_shape})},
          {"layers", describe_layers<Net>()},
          {"work of an example", text({Net::graph.flops, " FLOP"})},
          {"device", text({D::name, " ", D::precision})},
          {"loss", describe_loss(loss)},
          {"optimizer", describe_optimizer(optimizer)},
          {"metrics", of_metrics},
          {"seed", text({seed})},
          {"virtual shards", text({virtual_shards})},
          {"arithmetic", arithmetic_of_build()},
          {"the library's arithmetic", arithmetic_of_library()},
          // After the seed, which they follow from.
          {"initial values", describe_values<Net>(weights, state)}};
}

/// Of a number that may not be known.
template <class N>
std::string shown_number(const std::optional<N>& n) {
  return n ? text({*n}) : "unknown";
}

/// How much examples count.
template <class Data>
std::string describe_weights(const ClassWeights& classes = {}) {
  std::string result = WeightedDataset<Data> ? "one an example" : classes.empty() ? "none" : "";
  const ClassTable table(classes);  // by class
  for (const auto& [number, weight] : table.all())
    result += text({result.empty() ? "" : ", ", "class ", number, " ", json_number(weight)});
  return result;
}

template <class Validation>
std::string describe_validation(const Validation& data, const FitOptions& options) {
  if constexpr (requires { data.batch_size(); })
    return text({shown_number(data.size()), " examples, batch ", data.batch_size(), ", each ",
                 options.validation_freq, " epochs, steps ", shown_number(options.validation_steps),
                 WeightedDataset<Validation> ? ", weighted" : ""});
  else
    return "none";
}

/// Which examples a pass begins with: a number that differs, in all likelihood, if they do.
template <class Data>
std::string describe_order(const Data& data) {
  auto order = data.indices(Pass{});
  std::uint64_t sum = 0;
  for (int i = 0; i < 64; ++i) {
    const auto index = order.next();
    if (!index) break;
    sum = mix(sum, *index);
  }
  return print("%016llx", static_cast<unsigned long long>(sum));
}

/// Compared when `fit` begins.
template <class Data, class Validation>
[[gnu::cold]] Signature fit_signature(const Data& train, const Validation& validation,
                                      const FitOptions& options, std::uint64_t first_step,
                                      std::uint64_t first_pass, double rate, bool is_rate_set) {
  return {{"training examples", shown_number(train.size())},
          {"global batch", text({train.batch_size()})},
          {"order of the examples", describe_order(train)},
          {"weights", describe_weights<Data>(options.class_weight)},
          {"epochs", text({options.epochs})},
          {"initial epoch", text({options.initial_epoch})},
          {"steps an epoch", shown_number(options.steps_per_epoch)},
          {"steps an execution", text({options.steps_per_execution})},
          {"validation", describe_validation(validation, options)},
          {"verify_every", text({options.verify_every})},
          {"first step", text({first_step})},
          {"first pass", text({first_pass})},
          {"learning rate", json_number(rate) + (is_rate_set ? ", set" : "")}};
}

/// Compared when `evaluate` or `predict` begins.
template <class Data>
[[gnu::cold]] Signature data_signature(const Data& data, std::optional<std::uint64_t> steps) {
  return {{"examples", shown_number(data.size())},
          {"global batch", text({data.batch_size()})},
          {"order of the examples", describe_order(data)},
          {"weights", describe_weights<Data>()},
          {"steps", shown_number(steps)}};
}

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/checks/model_signature.ipp"
#endif
