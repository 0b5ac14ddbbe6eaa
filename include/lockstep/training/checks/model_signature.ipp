#pragma once

#include "lockstep/training/checks/model_signature.hpp"

#include <algorithm>
#include <atomic>
#include <span>
#include <utility>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/training/callbacks/fenced_callback.hpp"
#include "lockstep/training/callbacks/trace_request.hpp"

namespace lockstep::detail {

std::string describe_update_options(double weight_decay, const UpdateOptions& with) {
  std::string result;
  const auto add = [&result](std::string_view name, double value) {
    if (value != 0) result += format_text(", {} {}", name, json_number(value));
  };
  add("weight_decay", weight_decay);
  for (const std::string& name : with.exclude_from_weight_decay)
    result += format_text(", without '{}'", name);
  add("clipnorm", with.clipnorm);
  add("block_clipnorm", with.block_clipnorm);
  add("global_clipnorm", with.global_clipnorm);
  add("clipvalue", with.clipvalue);
  if (with.use_ema) result += format_text(", ema_momentum {}", json_number(with.ema_momentum));
  add("ema_overwrite_frequency", static_cast<double>(with.ema_overwrite_frequency));
  if (with.gradient_accumulation_steps > 1)
    add("gradient_accumulation_steps", static_cast<double>(with.gradient_accumulation_steps));
  return result;
}

std::string describe_arithmetic(bool fast_math, bool fused, std::string_view compiler) {
  return format_text("{}{}{}{}", fast_math ? "fast math" : "IEEE 754",
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
    result += format_text("{}class {} {}", result.empty() ? "" : ", ", number, json_number(weight));
  return result;
}

std::string describe_validation(const std::optional<DescribedData>& data,
                                const FitOptions& options) {
  if (!data) return "none";
  return format_text("{} examples, batch {}, every {} epochs, steps {}{}",
                     shown_number(data->examples), data->batch, options.validation_freq,
                     shown_number(options.validation_steps), data->is_weighted ? ", weighted" : "");
}

[[gnu::cold]] inline std::string describe_size(const DescribedData& data) {
  if (!data.examples && data.round) return format_text("{}, repeated", *data.round);
  return shown_number(data.examples);
}

/// The first examples come before the digest, which explains nothing to the reader.
[[gnu::cold]] inline std::string describe_order(const DescribedData& data) {
  return format_text("{}digest {:016x}", data.first, data.order);
}

/// The steps of each ls::Trace. Its end is collective, so a process without it would not take part.
[[gnu::cold]] inline std::string describe_traces(const FitOptions& options) {
  std::string result;
  for (const auto& callback : options.callbacks)
    if (const auto* const trace = dynamic_cast<const TraceRequest*>(callback.get()))
      add_item(result, "; ", trace->traced_steps());
  return result.empty() ? "none" : result;
}

std::string describe_writes(const FitOptions& options) {
  std::string result;
  for (const auto& callback : options.callbacks)
    if (const auto* const writer = dynamic_cast<const FencedCallback*>(callback.get()))
      add_item(result, "; ", writer->described_writes());
  return result.empty() ? "none" : result;
}

Signature fit_signature(const DescribedData& train, const std::optional<DescribedData>& validation,
                        const FitOptions& options, std::uint64_t first_step,
                        std::uint64_t first_pass, double rate, bool is_rate_set) {
  Signature fields = {{"training examples", describe_size(train)},
                      {"global batch", std::to_string(train.batch)},
                      {"order of the examples", describe_order(train)},
                      {"weights", describe_weights(train.is_weighted, options.class_weight)},
                      {"epochs", std::to_string(options.epochs)},
                      {"initial epoch", std::to_string(options.initial_epoch)},
                      {"steps per epoch", shown_number(options.steps_per_epoch)},
                      {"steps per execution", std::to_string(options.steps_per_execution)},
                      {"validation", describe_validation(validation, options)},
                      {"verify_every", std::to_string(options.verify_every)},
                      {"trace", describe_traces(options)},
                      {"first step", std::to_string(first_step)},
                      {"first pass", std::to_string(first_pass)},
                      {"learning rate", json_number(rate) + (is_rate_set ? ", set" : "")}};
  add_contents(fields, train, "the examples");
  if (validation) add_contents(fields, *validation, "the validation examples");
  return fields;
}

std::string remove_generated(Signature& fields) {
  for (auto field = fields.begin(); field != fields.end(); ++field)
    if (field->first == generated_field) {
      std::string value = std::move(field->second);
      fields.erase(field);
      return value;
    }
  return {};
}

/// Logs `what` once in a process.
[[gnu::cold]] inline void warn_once(std::atomic<bool>& is_done, std::string_view part,
                                    std::string_view what) {
  if (!is_done.exchange(true)) log(LogLevel::warning, format_text("{}: {}", part, what));
}

void compare_signatures(AnyJob& replicas, std::string_view part, Signature& fields) {
  static std::atomic<bool> varies = false, differs = false;
  const std::string generated = remove_generated(fields);
  replicas.agree(part, fields);
  const TrainingPlace place = replicas.place();
  if (place.is_alone) return;
  if (place.is_chief)
    for (const auto& [name, value] : fields)
      if (value == varying_contents)
        warn_once(varies, part,
                  format_text("the {} are {}, so that the workers cannot compare them; draw random "
                              "numbers from the Philox that lockstep::map passes to the function",
                              name, value));
  if (generated.empty()) return;
  const auto all = replicas.gather(std::as_bytes(std::span(generated)));
  const bool are_equal =
      std::all_of(all.begin(), all.end(), [&](const auto& other) { return other == all[0]; });
  if (!are_equal && place.is_chief)
    warn_once(differs, part,
              "the generators of the workers give different examples; if that is not intended, "
              "compute an example from its number alone");
}

void check_joins(const Signature& mine, const Signature& of_job) {
  for (const auto& [name, value] : mine)
    for (const auto& field : of_job)
      if (field.first == name && field.second != value && name != "first step" &&
          name != "first pass" && name != "learning rate")
        throw UsageError("fit: {} is {} in this worker, but {} in the job that it joins; {}", name,
                         value, field.second, remedy_of_difference(name));
}

Signature data_signature(const DescribedData& data, std::optional<std::uint64_t> steps,
                         bool has_targets) {
  Signature fields = {{"examples", describe_size(data)},
                      {"global batch", std::to_string(data.batch)},
                      {"order of the examples", describe_order(data)},
                      {"weights", describe_weights(data.is_weighted, {})},
                      {"steps", shown_number(steps)}};
  add_contents(fields, data, "the examples", has_targets);
  return fields;
}

}  // namespace lockstep::detail
