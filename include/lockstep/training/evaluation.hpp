/// \file
/// The loops of `Model::evaluate` and `Model::predict`, and of `fit`'s validation: batch by batch,
/// until the data end or a stop is requested.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/concepts/device.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/training/checks/model_signature.hpp"
#include "lockstep/training/checks/run_checks.hpp"
#include "lockstep/training/fit_options.hpp"
#include "lockstep/training/run.hpp"
#include "lockstep/training/step/batches.hpp"

namespace lockstep::detail {

/// The result of an evaluation.
struct Evaluated {
  Logs logs;
  bool is_complete = false;  ///< false: stopped early; the logs cover a part of the data
};

/// Evaluates, or predicts, at most `most` batches of one pass, and calls the hooks.
LOCKSTEP_DECL Evaluated evaluate_over(Run& run, Steps& steps, std::optional<std::uint64_t> most);
LOCKSTEP_DECL void predict_over(Run& run, Steps& steps, std::optional<std::uint64_t> most);

/// Compares the data of all processes. Collective. \throws UsageError in all of them.
template <class T, class Data>
void compare_data(AnyJob& replicas, std::string_view part, const Data& data,
                  const EvaluateOptions& options, bool has_targets = true) {
  if (replicas.place().is_alone) return;
  Signature fields = data_signature(described<T>(data, options.steps), options.steps, has_targets);
  compare_signatures(replicas, part, fields);
}

/// `Model::evaluate`: checks the data, compares signatures and weights, evaluates.
template <class Replicas, class Data>
Logs run_evaluate(Replicas& replicas, BetweenRuns& kept, const Data& data,
                  const EvaluateOptions& options) {
  check_ends("evaluate", data.size(), options.steps);
  Run run(replicas, kept, options.callbacks, options.progress, options.stop);
  if constexpr (!HostDevice<typename Replicas::device>) replicas.prepare(data.batch_size());
  auto batches = batches_over(replicas, data, "evaluate: the");
  run.numbers.steps = step_count(data.size(), data.batch_size(), options.steps);
  run.numbers.batch_size = data.batch_size();
  if constexpr (!Replicas::is_one_process)
    compare_data<typename Replicas::T>(replicas, "evaluate", data, options);
  replicas.verify_weights();
  EvaluationSteps steps(replicas, batches);
  return evaluate_over(run, steps, options.steps).logs;
}

/// `Model::predict`. \returns the outputs of all examples, (examples, output).
template <class Replicas, class Data>
std::vector<typename Replicas::T> run_predict(Replicas& replicas, BetweenRuns& kept,
                                              const Data& data, const EvaluateOptions& options) {
  check_ends("predict", data.size(), options.steps);
  check_examples<typename Replicas::Network>(data);
  Run run(replicas, kept, options.callbacks, options.progress, options.stop);
  auto loader = host_batches(data, replicas, {}, FieldRole::feature);
  run.numbers.steps = step_count(data.size(), data.batch_size(), options.steps);
  run.numbers.batch_size = data.batch_size();
  if constexpr (!Replicas::is_one_process)
    compare_data<typename Replicas::T>(replicas, "predict", data, options, false);
  replicas.verify_weights();
  PredictionSteps steps(replicas, loader);
  predict_over(run, steps, options.steps);
  return std::move(steps.outputs);
}

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/evaluation.ipp"
#endif
