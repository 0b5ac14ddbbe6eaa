#pragma once

#include "lockstep/training/checks/model_signature.hpp"

#include <utility>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/fmt_core.hpp"
#include "lockstep/training/callbacks/trace_request.hpp"

namespace lockstep::detail {

std::string describe_update_options(double weight_decay, const UpdateOptions& with) {
  std::string result;
  const auto add = [&result](std::string_view name, double value) {
    if (value != 0) result += fmt::format(", {} {}", name, json_number(value));
  };
  add("weight_decay", weight_decay);
  for (const std::string& name : with.exclude_from_weight_decay)
    result += fmt::format(", without '{}'", name);
  add("clipnorm", with.clipnorm);
  add("global_clipnorm", with.global_clipnorm);
  add("clipvalue", with.clipvalue);
  if (with.use_ema) result += fmt::format(", ema_momentum {}", json_number(with.ema_momentum));
  add("ema_overwrite_frequency", static_cast<double>(with.ema_overwrite_frequency));
  if (with.gradient_accumulation_steps > 1)
    add("gradient_accumulation_steps", static_cast<double>(with.gradient_accumulation_steps));
  return result;
}

std::string describe_arithmetic(bool fast_math, bool fused, std::string_view compiler) {
  return fmt::format("{}{}{}{}", fast_math ? "fast math" : "IEEE 754",
                     fused ? ", fused multiply-add" : "", fast_math || fused ? " of " : "",
                     fast_math || fused ? compiler : "");
}

std::string arithmetic_of_library() { return arithmetic_of_build(); }

void add_field(Signature& to, const char* name, std::string value) {
  to.emplace_back(name, std::move(value));
}

/// A number as text, "unknown" for nullopt.
[[gnu::cold]] inline std::string shown_number(std::optional<std::uint64_t> n) {
  return n ? std::to_string(*n) : "unknown";
}

/// The sample weights and class weights as text, class weights by class.
[[gnu::cold]] inline std::string describe_weights(bool is_weighted, const ClassWeights& classes) {
  std::string result = is_weighted ? "one per example" : classes.empty() ? "none" : "";
  const ClassTable table(classes);  // sorted by class
  for (const auto& [number, weight] : table.all())
    result += fmt::format("{}class {} {}", result.empty() ? "" : ", ", number, json_number(weight));
  return result;
}

std::string describe_validation(std::optional<std::uint64_t> examples, std::size_t batch,
                                bool is_weighted, const FitOptions& options) {
  return fmt::format("{} examples, batch {}, every {} epochs, steps {}{}", shown_number(examples),
                     batch, options.validation_freq, shown_number(options.validation_steps),
                     is_weighted ? ", weighted" : "");
}

[[gnu::cold]] inline std::string describe_size(const DescribedData& data) {
  if (!data.examples && data.round) return fmt::format("{}, repeated", *data.round);
  return shown_number(data.examples);
}

/// The first examples come before the digest, which explains nothing to the reader.
[[gnu::cold]] inline std::string describe_order(const DescribedData& data) {
  return fmt::format("{}digest {:016x}", data.first, data.order);
}

/// The steps of each ls::Trace. Its end is collective, so a process without it would not take part.
[[gnu::cold]] inline std::string describe_traces(const FitOptions& options) {
  std::string result;
  for (const auto& callback : options.callbacks)
    if (const auto* const trace = dynamic_cast<const TraceRequest*>(callback.get()))
      add_item(result, "; ", trace->traced_steps());
  return result.empty() ? "none" : result;
}

Signature fit_signature(const DescribedData& train, std::string validation,
                        const FitOptions& options, std::uint64_t first_step,
                        std::uint64_t first_pass, double rate, bool is_rate_set) {
  return {{"training examples", describe_size(train)},
          {"global batch", std::to_string(train.batch)},
          {"order of the examples", describe_order(train)},
          {"weights", describe_weights(train.is_weighted, options.class_weight)},
          {"epochs", std::to_string(options.epochs)},
          {"initial epoch", std::to_string(options.initial_epoch)},
          {"steps per epoch", shown_number(options.steps_per_epoch)},
          {"steps per execution", std::to_string(options.steps_per_execution)},
          {"validation", std::move(validation)},
          {"verify_every", std::to_string(options.verify_every)},
          {"trace", describe_traces(options)},
          {"first step", std::to_string(first_step)},
          {"first pass", std::to_string(first_pass)},
          {"learning rate", json_number(rate) + (is_rate_set ? ", set" : "")}};
}

void check_joins(const Signature& mine, const Signature& of_job) {
  for (const auto& [name, value] : mine)
    for (const auto& field : of_job)
      if (field.first == name && field.second != value && name != "first step" &&
          name != "first pass" && name != "learning rate")
        throw UsageError(
            "fit: {} is {} in this worker, but {} in the job that it joins; give all workers the "
            "same",
            name, value, field.second);
}

Signature data_signature(const DescribedData& data, std::optional<std::uint64_t> steps) {
  return {{"examples", describe_size(data)},
          {"global batch", std::to_string(data.batch)},
          {"order of the examples", describe_order(data)},
          {"weights", describe_weights(data.is_weighted, {})},
          {"steps", shown_number(steps)}};
}

}  // namespace lockstep::detail
