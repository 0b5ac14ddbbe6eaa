#pragma once

#include "lockstep/training/fit_loop.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/training/checkpoint/checkpoint_request.hpp"
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
      first_epoch_(options.initial_epoch),
      most_steps_(options.steps_per_epoch.value_or(std::numeric_limits<std::uint64_t>::max())) {
  run_.numbers.epochs = options_.epochs;
  run_.numbers.initial_epoch = options_.initial_epoch;
  run_.numbers.steps = step_count(examples, batch, options_.steps_per_epoch);
  run_.numbers.batch_size = batch;
  run_.callbacks.add(history_);
  const CheckpointRequest* request = nullptr;
  for (const auto& callback : options_.callbacks)
    if (const auto* found = dynamic_cast<const CheckpointRequest*>(callback.get())) {
      if (request != nullptr || options_.checkpoint)
        throw UsageError(
            "fit: checkpoints are requested twice; keep one of .checkpoint and BackupAndRestore");
      request = found;
    }
  if (request != nullptr || options_.checkpoint)
    checkpoints_.emplace(request != nullptr ? request->options() : options_.checkpoint,
                         request != nullptr && request->removes(), replicas_, run_.numbers.metrics);
}

FitLoop::~FitLoop() = default;

History FitLoop::run(Steps& train, Steps* validation, FunctionRef<Signature()> describe) {
  try {
    run_epochs(train, validation, describe);
  } catch (...) {
    // Now: the destructor waits until a checkpoint is on disk.
    replicas_.fail(std::current_exception());
    throw;
  }
  return std::move(history_);
}

void FitLoop::run_epochs(Steps& train, Steps* validation, FunctionRef<Signature()> describe) {
  begin(train, describe);
  for (int epoch = first_epoch_; epoch < options_.epochs && !ends_; ++epoch) {
    begin_epoch(train, epoch);
    const bool has_trained = train_epoch(train, epoch);
    if (requests_.stop_now || !has_trained) break;  // an unfinished epoch has no logs
    store_epoch_logs();
    if (validation != nullptr && (epoch + 1) % options_.validation_freq == 0 &&
        !validate(*validation) && checkpoints_) {
      save_checkpoint(epoch, epoch_steps_);  // a run that continues repeats the validation
      requests_.stop_now = true;
      break;
    }
    end_epoch(epoch);
  }
  if (checkpoints_) {
    note(Phase::checkpoint);
    checkpoints_->wait();
    // All wait for the last checkpoint, and end alike if a signal has come since the last exchange.
    const bool has_stopped = requests_.stop_now;
    exchange_requests();
    requests_.stop_now = requests_.stop_now || has_stopped;
    if (!requests_.stop_now) checkpoints_->finish();
    note(Phase::callback);
  }
  if (replicas_.updates() > first_update_) replicas_.overwrite_with_averages();
  if (resumed_) restore_callbacks();  // no epoch is left to train
  run_.callbacks.on_train_end(logs_);
}

void FitLoop::begin(Steps& train, FunctionRef<Signature()> describe) {
  const TrainingPlace& place = run_.place;
  first_update_ = replicas_.updates();
  if (!place.is_one_process || checkpoints_) {
    signature_ = describe();
    signature_.emplace_back("checkpoints", checkpoints_ ? "yes" : "no");
  }
  replicas_.agree("fit", signature_);
  examples_ = options_.steps_per_epoch ? examples_before(batch_size_, options_) : 0;
  if (checkpoints_) resume();
  replicas_.swap_averages(false);
  if (options_.steps_per_epoch) train.begin({replicas_.seed(), first_pass_}, examples_);
  replicas_.verify();
  if (place.replicas > 1 && place.is_chief && options_.progress != ProgressStyle::none)
    log(LogLevel::info,
        start_line(place.strategy, place.replicas, place.virtual_shards, batch_size_));
  note(Phase::callback);
  run_.callbacks.on_train_begin({});
  if (resumed_ && resumed_->position->steps == 0) restore_callbacks();
}

JobState FitLoop::job_state() const {
  JobState state;
  replicas_.save(state);
  // The part of the fit's signature that decides which examples a step sees.
  for (const auto& field : signature_)
    for (const std::string_view name : {"training examples", "global batch",
                                        "order of the examples", "weights", "steps per epoch"})
      if (field.first == name) state.signature.push_back(field);
  kept_.save(state);
  return state;
}

void FitLoop::resume() {
  note(Phase::checkpoint);
  std::string notes;
  std::optional<JobState> loaded = checkpoints_->begin(job_state(), notes);
  if (!loaded) return;
  JobState& state = resumed_.emplace(std::move(*loaded));
  replicas_.load(state);
  kept_.restore(state);
  state.drop_buffers();
  if (state.position) {
    const RunPosition& at = *state.position;
    first_epoch_ = at.epoch;
    first_pass_ = at.pass;
    examples_ = at.examples;
    first_update_ = at.first_update;
    ends_ = at.has_ended;
  } else {  // by Model::save_checkpoint, between two runs
    state.position.emplace();
    first_pass_ = detail::first_pass(kept_.passes, options_);
    first_update_ = replicas_.updates();
  }
  run_.numbers.initial_epoch = first_epoch_;
  run_.numbers.first_step = replicas_.steps();
  run_.numbers.resumed = true;
  if (!run_.place.is_chief) return;
  const bool has_finished = ends_ || first_epoch_ >= options_.epochs;
  log(LogLevel::info,
      has_finished
          ? fmt::format("checkpoint {}: training ended after {} steps and {} epochs; {}",
                        checkpoints_->directory(), replicas_.steps(), first_epoch_,
                        ends_ ? "use another directory to train again"
                              : "use more epochs to continue, or another directory to train again")
          : fmt::format("checkpoint {}: training continues after {} steps, in epoch {}",
                        checkpoints_->directory(), replicas_.steps(), first_epoch_ + 1));
  const bool is_divided_alike =
      state.replicas == run_.place.replicas || run_.place.virtual_shards > 0;
  if (!is_divided_alike)
    add_item(notes, "; ",
             fmt::format("it has {} replicas and had {}", run_.place.replicas, state.replicas));
  if (!notes.empty()) log_rounding(checkpoints_->directory(), notes);
}

void FitLoop::restore_callbacks() {
  const JobState state = std::move(*resumed_);
  resumed_.reset();
  std::string left;
  for (const std::string& name : run_.callbacks.load_states(state.callbacks))
    if (name != best_state_name) add_item(left, ", ", name);
  if (!left.empty() && run_.place.is_chief)
    log(LogLevel::warning,
        fmt::format("checkpoint {}: it has the state of {}, but fit has no such callback",
                    checkpoints_->directory(), left));
  kept_.rate = state.rate;
  kept_.unsent_rate.reset();
}

void FitLoop::begin_epoch(Steps& train, int epoch) {
  note(Phase::callback);
  run_.callbacks.on_epoch_begin(epoch, {});
  running_.reset();
  const auto done = static_cast<std::uint64_t>(epoch - first_epoch_);
  const std::uint64_t pass = first_pass_ + (options_.steps_per_epoch ? 0 : done);
  if (!options_.steps_per_epoch) {
    if (!resumed_) examples_ = 0;
    train.begin({replicas_.seed(), pass}, examples_);
  }
  kept_.passes = std::max(kept_.passes, pass + 1);  // a hook may have trained on later passes
}

bool FitLoop::train_epoch(Steps& train, int epoch) {
  std::uint64_t done = 0;
  if (resumed_) {
    done = resumed_->position->steps;
    running_.restore(resumed_->position->logs);
    restore_callbacks();
  }
  while (done < most_steps_) {
    const Execution made = execute(train, done);
    if (made.steps > 0) {
      end_execution(made, epoch, done);
      done += made.steps;
      if (requests_.end_training || requests_.stop_now) break;
    }
    if (!made.has_data) {
      end_of_data(epoch, done);
      break;
    }
  }
  epoch_steps_ = done;
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
    examples_ += batch_size_;
  }
  if (made.steps > 0 && made.steps < most) replicas_.wait_for_steps();
  return made;
}

void FitLoop::end_execution(const Execution& made, int epoch, std::uint64_t done) {
  replicas_.read_sums(running_);
  const std::uint64_t each = options_.verify_every;
  if (each > 0 && made.before / each != replicas_.steps() / each) replicas_.verify();
  const RunRequests agreed = replicas_.agreed_requests();
  run_.callbacks.on_train_batch_end(static_cast<std::size_t>(done + made.steps - 1),
                                    running_.logs());
  requests_ = run_.effective(agreed);
  // After the last step of an epoch the checkpoint is saved at the epoch's end.
  const std::uint64_t now = done + made.steps;
  if (checkpoints_ && now != run_.numbers.steps &&
      checkpoints_->is_due(made.before, replicas_.steps()))
    save_checkpoint(epoch, now);
  else if (checkpoints_ && requests_.stop_now)
    save_checkpoint(epoch, now);
}

void FitLoop::save_checkpoint(int epoch, std::uint64_t steps) {
  note(Phase::checkpoint);
  checkpoints_->wait();  // before the copy, so that only one is in memory
  if (!run_.place.is_chief) {
    checkpoints_->skip(replicas_.steps());
    return note(Phase::callback);
  }
  JobState state = job_state();
  state.position = {.epoch = epoch,
                    .steps = steps,
                    .pass = first_pass_,
                    .examples = examples_,
                    .first_update = first_update_,
                    .has_ended = ends_,
                    .logs = running_.state()};
  if (!options_.steps_per_epoch) {
    state.position->pass += static_cast<std::uint64_t>(epoch - first_epoch_);
    if (steps == 0) state.position->examples = 0;
  }
  state.callbacks = run_.callbacks.states();
  checkpoints_->save(std::move(state));
  note(Phase::callback);
}

void FitLoop::end_of_data(int epoch, std::uint64_t done) {
  if (done == 0 && epoch == first_epoch_ && !run_.numbers.resumed)
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

bool FitLoop::validate(Steps& validation) {
  const Evaluated found = evaluate_over(run_, validation, options_.validation_steps);
  if (!found.is_complete) return false;
  for (const auto& [name, value] : found.logs) logs_.set("val_" + name, value);
  return true;
}

void FitLoop::exchange_requests() {
  replicas_.exchange_requests(run_.pop_requests());
  run_.adopt_agreed_rate();
  requests_ = run_.effective(replicas_.agreed_requests());
}

void FitLoop::end_epoch(int epoch) {
  note(Phase::callback);
  run_.end_epoch(epoch, logs_);
  replicas_.end_epoch(epoch);
  exchange_requests();
  ends_ = requests_.end_training || ran_out_;
  const bool is_last = ends_ || requests_.stop_now || epoch + 1 == options_.epochs;
  if (checkpoints_) {
    checkpoints_->note_epoch(logs_, replicas_.steps());
    const std::uint64_t last = checkpoints_->last_step().value_or(0);
    if (is_last || checkpoints_->is_due_after_epochs() ||
        checkpoints_->is_due(last, replicas_.steps()))
      save_checkpoint(epoch + 1, 0);
  }
  ends_ = ends_ || requests_.stop_now;
}

}  // namespace lockstep::detail
