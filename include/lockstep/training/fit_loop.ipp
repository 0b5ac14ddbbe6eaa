#pragma once

#include "lockstep/training/fit_loop.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/training/report/start_line.hpp"

namespace lockstep::detail {

[[gnu::cold]] inline const FitOptions& checked(const FitOptions& options,
                                               std::optional<std::uint64_t> examples) {
  check_options(options);
  if (!examples && !options.steps_per_epoch)
    throw UsageError("fit: the data never end, so an epoch has no end; set .steps_per_epoch");
  return options;
}

FitLoop::FitLoop(AnyReplicas& replicas, BetweenRuns& kept, std::optional<std::uint64_t> examples,
                 std::size_t batch, const FitOptions& options)
    : replicas_(replicas),
      kept_(kept),
      batch_size_(batch),
      options_(checked(options, examples)),
      run_(replicas, kept, options.callbacks, options.progress, options.stop),
      running_(replicas.begin_logs()),
      first_pass_(detail::first_pass(kept.passes, options)),
      most_steps_(options.steps_per_epoch.value_or(std::numeric_limits<std::uint64_t>::max())) {
  run_.numbers.epochs = options_.epochs;
  run_.numbers.initial_epoch = options_.initial_epoch;
  run_.numbers.steps = step_count(examples, batch, options_.steps_per_epoch);
  run_.numbers.batch_size = batch;
  run_.callbacks.add(history_);
}

FitLoop::~FitLoop() = default;

History FitLoop::run(Steps& train, Steps* validation, FunctionRef<void()> agree) {
  begin(train, agree);
  for (int epoch = options_.initial_epoch; epoch < options_.epochs && !ends_; ++epoch) {
    begin_epoch(train, epoch);
    const bool has_trained = train_epoch(train, epoch);
    if (requests_.stop_now || !has_trained) break;  // an unfinished epoch has no logs
    store_epoch_logs();
    if (validation != nullptr && (epoch + 1) % options_.validation_freq == 0) validate(*validation);
    end_epoch(epoch);
  }
  if (replicas_.updates() > first_update_) replicas_.overwrite_with_averages();
  run_.callbacks.on_train_end(logs_);
  return std::move(history_);
}

void FitLoop::begin(Steps& train, FunctionRef<void()> agree) {
  if (options_.steps_per_epoch)
    train.begin({replicas_.seed(), first_pass_}, examples_before(batch_size_, options_));
  first_update_ = replicas_.updates();
  agree();
  replicas_.verify();
  const TrainingPlace& place = run_.place;
  if (place.replicas > 1 && place.is_chief && options_.progress != ProgressStyle::none)
    log(LogLevel::info,
        start_line(place.strategy, place.replicas, place.virtual_shards, batch_size_));
  note(Phase::callback);
  run_.callbacks.on_train_begin({});
}

void FitLoop::begin_epoch(Steps& train, int epoch) {
  note(Phase::callback);
  run_.callbacks.on_epoch_begin(epoch, {});
  running_.reset();
  const auto done = static_cast<std::uint64_t>(epoch - options_.initial_epoch);
  const std::uint64_t pass = first_pass_ + (options_.steps_per_epoch ? 0 : done);
  if (!options_.steps_per_epoch) train.begin({replicas_.seed(), pass}, 0);
  kept_.passes = std::max(kept_.passes, pass + 1);  // a hook may have trained on later passes
}

bool FitLoop::train_epoch(Steps& train, int epoch) {
  std::uint64_t done = 0;
  while (done < most_steps_) {
    const Execution made = execute(train, done);
    if (made.steps > 0) {
      end_execution(made, done);
      done += made.steps;
      if (requests_.end_training || requests_.stop_now) break;
    }
    if (!made.has_data) {
      end_of_data(epoch, done);
      break;
    }
  }
  return done > 0;
}

FitLoop::Execution FitLoop::execute(Steps& train, std::uint64_t done) {
  const std::uint64_t most = std::min(options_.steps_per_execution, most_steps_ - done);
  Execution made{replicas_.steps()};
  first_update_ = std::min(first_update_, replicas_.updates());  // a hook may reset the optimizer
  while (made.steps < most && (made.steps == 0 || !run_.stops_without_peers())) {
    note(Phase::data);
    made.has_data = train.next();
    if (!made.has_data) break;
    if (made.steps == 0) run_.callbacks.on_train_batch_begin(static_cast<std::size_t>(done), {});
    train.run_step(run_.pop_requests(), kept_.rate_of(replicas_), made.steps + 1 == most);
    run_.adopt_agreed_rate();
    ++made.steps;
  }
  if (made.steps > 0 && made.steps < most) replicas_.wait_for_steps();
  return made;
}

void FitLoop::end_execution(const Execution& made, std::uint64_t done) {
  replicas_.read_sums(running_);
  const std::uint64_t each = options_.verify_every;
  if (each > 0 && made.before / each != replicas_.steps() / each) replicas_.verify();
  const RunRequests agreed = replicas_.agreed_requests();
  run_.callbacks.on_train_batch_end(static_cast<std::size_t>(done + made.steps - 1),
                                    running_.logs());
  requests_ = run_.effective(agreed);
}

void FitLoop::end_of_data(int epoch, std::uint64_t done) {
  if (done == 0 && epoch == options_.initial_epoch)
    throw UsageError(
        "fit: no data left for epoch {}; lower .initial_epoch, or add ls::repeat before ls::batch",
        epoch + 1);
  if (!options_.steps_per_epoch) return;
  log(LogLevel::warning,
      fmt::format(
          "fit: the data ran out in epoch {} after step {}, so training ends; add ls::repeat "
          "before ls::batch",
          epoch + 1, done));
  ran_out_ = true;
}

void FitLoop::store_epoch_logs() {
  logs_.clear();
  for (const auto& [name, value] : running_.logs()) logs_.set(name, value);
  kept_.totals = running_.totals();
}

void FitLoop::validate(Steps& validation) {
  const Evaluated found = evaluate_over(run_, validation, options_.validation_steps);
  if (!found.is_complete) return;
  for (const auto& [name, value] : found.logs) logs_.set("val_" + name, value);
}

void FitLoop::end_epoch(int epoch) {
  note(Phase::callback);
  run_.end_epoch(epoch, logs_);
  replicas_.end_epoch(epoch);
  replicas_.exchange_requests(run_.pop_requests());
  run_.adopt_agreed_rate();
  requests_ = run_.effective(replicas_.agreed_requests());
  ends_ = requests_.stop_now || requests_.end_training || ran_out_;
}

}  // namespace lockstep::detail
