/// \file
/// `Model::evaluate` and `Model::predict`, and the validations of `fit`: one batch after the other,
/// until the data end or a stop is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/concepts/device.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/training/checks/model_signature.hpp"
#include "lockstep/training/checks/run_checks.hpp"
#include "lockstep/training/fit_options.hpp"
#include "lockstep/training/run.hpp"
#include "lockstep/training/step/batches.hpp"

namespace lockstep::detail {

struct Evaluated {
  Logs logs;
  bool is_whole = false;  ///< else the run was stopped, and the numbers are not those of the data
};

/// Of the batches of one pass, at most `steps`.
template <class Model, class Replicas, class Batches>
Evaluated evaluate_over(Run<Model, Replicas>& run, Batches& batches,
                        std::optional<std::uint64_t> steps) {
  Replicas& replicas = run.replicas;
  typename Replicas::Running running;
  typename Replicas::Batch batch;
  run.callbacks.on_test_begin({});
  batches.begin({replicas.seed(), 0});
  bool stops = run.stops_alone();
  for (std::uint64_t b = 0; (!steps || b < *steps) && !stops && batches.next(batch); ++b) {
    run.callbacks.on_test_batch_begin(static_cast<std::size_t>(b), {});
    replicas.test(batch, run.asked());
    const auto agreed = replicas.agreed();
    replicas.take(running);
    run.callbacks.on_test_batch_end(static_cast<std::size_t>(b), running.logs());
    stops = run.decided(agreed).now;
  }
  running.copy_totals(run.kept.totals);
  run.callbacks.on_test_end(running.logs());
  return {running.logs(), !stops};
}

template <class Model, class Replicas, class Data>
Logs run_evaluate(Model& model, Replicas& replicas, BetweenRuns& kept, const Data& data,
                  const EvaluateOptions& options) {
  check_ends("evaluate", data, options.steps);
  Run<Model, Replicas> run(model, replicas, kept, options);
  if constexpr (!HostDevice<typename Replicas::device>) replicas.prepare(data.batch_size());
  auto batches = batches_over(replicas, data, "evaluate: the");
  run.numbers.steps = step_count(data, options.steps);
  run.numbers.batch_size = data.batch_size();
  if constexpr (!Replicas::is_one_process)
    replicas.session().agree("evaluate", data_signature(data, options.steps));
  replicas.verify_weights();
  return evaluate_over(run, batches, options.steps).logs;
}

/// The outputs of all examples, one after the other.
template <class Model, class Replicas, class Data>
std::vector<typename Replicas::T> run_predict(Model& model, Replicas& replicas, BetweenRuns& kept,
                                              const Data& data, const EvaluateOptions& options) {
  using T = typename Replicas::T;
  check_ends("predict", data, options.steps);
  check_examples<typename Replicas::Network>(data);
  Run<Model, Replicas> run(model, replicas, kept, options);
  Loader<T, Data> loader(data, replicas.share());
  run.numbers.steps = step_count(data, options.steps);
  run.numbers.batch_size = data.batch_size();
  if constexpr (!Replicas::is_one_process)
    replicas.session().agree("predict", data_signature(data, options.steps));
  replicas.verify_weights();
  std::vector<T> out;
  typename Loader<T, Data>::Batch batch;
  run.callbacks.on_predict_begin({});
  loader.begin({replicas.seed(), 0});
  bool stops = run.stops_alone();
  for (std::uint64_t b = 0; (!options.steps || b < *options.steps) && !stops && loader.next(batch);
       ++b) {
    run.callbacks.on_predict_batch_begin(static_cast<std::size_t>(b), {});
    replicas.predict({.x = batch.x, .slice = batch.slice}, out, run.asked());
    const auto agreed = replicas.agreed();
    run.callbacks.on_predict_batch_end(static_cast<std::size_t>(b), {});
    stops = run.decided(agreed).now;
  }
  run.callbacks.on_predict_end({});
  return out;
}

}  // namespace lockstep::detail
