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
#include "lockstep/training/signal_stop.hpp"

namespace lockstep::detail {

FitLoop::FitLoop(AnyReplicas& replicas, BetweenRuns& kept, std::optional<std::uint64_t> examples,
                 std::size_t batch, const FitOptions& options)
    : replicas_(replicas),
      kept_(kept),
      batch_size_(batch),
      options_(checked_options(options, examples)),
      run_(replicas, kept, options.callbacks, options.progress, options.stop),
      running_(replicas.begin_logs()),
      first_pass_(detail::first_pass(kept.passes, options)),
      first_epoch_(options.initial_epoch),
      most_steps_(options.steps_per_epoch.value_or(std::numeric_limits<std::uint64_t>::max())),
      elastic_(replicas.elastic()) {
  if (elastic_ != nullptr && elastic_->is_in_call()) {
    elastic_->note_nested_call();
    elastic_ = nullptr;
  }
  run_.admits = elastic_ != nullptr;
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
    if (elastic_ != nullptr)
      run_elastic(train, validation, describe);
    else
      run_epochs(train, validation, describe);
  } catch (...) {
    // Now: the destructor waits until a checkpoint is on disk.
    replicas_.fail(std::current_exception());
    throw;
  }
  return std::move(history_);
}

void FitLoop::run_epochs(Steps& train, Steps* validation, FunctionRef<Signature()> describe) {
  if (!has_begun_) begin(train, describe);
  for (int epoch = first_epoch_; epoch < options_.epochs && !ends_ && !requests_.stop_now;
       ++epoch) {
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
  if (!std::exchange(hooks_.train_end, true)) run_.callbacks.on_train_end(logs_);
}

void FitLoop::begin(Steps& train, FunctionRef<Signature()> describe) {
  const TrainingPlace& place = run_.place;
  first_update_ = replicas_.updates();
  if (elastic_ != nullptr) {  // it may begin again, or with the state of a job that it has joined
    first_epoch_ = options_.initial_epoch;
    first_pass_ = detail::first_pass(kept_.passes, options_);
    ends_ = false;
    resumed_.reset();
  }
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
  if (!hooks_.train_begin) run_.callbacks.on_train_begin({});
  hooks_.train_begin = has_begun_ = true;
  epoch_ = first_epoch_;
  if (resumed_ && resumed_->position->steps == 0) restore_callbacks();
  if (elastic_ != nullptr) hooks_.between_epochs = run_.callbacks.states();
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
  log(LogLevel::info, resume_line(checkpoints_->directory(), replicas_.steps(), first_epoch_, ends_,
                                  first_epoch_ >= options_.epochs));
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
  epoch_ = epoch;
  if (hooks_.epoch_begin != epoch) {
    hooks_.rate_before_epoch = kept_.rate;
    run_.callbacks.on_epoch_begin(epoch, {});
  }
  hooks_.epoch_begin = epoch;
  const auto done = static_cast<std::uint64_t>(epoch - first_epoch_);
  const std::uint64_t pass = first_pass_ + (options_.steps_per_epoch ? 0 : done);
  if (std::exchange(continues_, false)) {
    if (done_ == 0 && execution_.steps == 0) running_.reset();
    train.begin({replicas_.seed(), pass}, examples_);
  } else {
    running_.reset();
    done_ = 0;
    if (!options_.steps_per_epoch) {
      if (!resumed_) examples_ = 0;
      train.begin({replicas_.seed(), pass}, examples_);
    }
  }
  kept_.passes = std::max(kept_.passes, pass + 1);  // a hook may have trained on later passes
}

bool FitLoop::train_epoch(Steps& train, int epoch) {
  if (resumed_) {
    done_ = resumed_->position->steps;
    running_.restore(resumed_->position->logs);
    restore_callbacks();
  }
  while (done_ < most_steps_ && !requests_.end_training && !requests_.stop_now) {
    execute(train);
    const bool has_data = execution_.has_data;
    if (execution_.steps > 0) {
      end_execution(epoch);
      if (requests_.end_training || requests_.stop_now) break;
      if (elastic_ != nullptr && requests_.admit) throw Admission{};
    }
    if (!has_data) {
      end_of_data(epoch, done_);
      break;
    }
  }
  epoch_steps_ = done_;
  return done_ > 0;
}

void FitLoop::execute(Steps& train) {
  const std::uint64_t most = std::min(options_.steps_per_execution, most_steps_ - done_);
  if (execution_.steps == 0) execution_ = {.before = replicas_.steps()};
  first_update_ = std::min(first_update_, replicas_.updates());  // a hook may reset the optimizer
  while (execution_.steps < most && (execution_.steps == 0 || !run_.stops_without_peers())) {
    note(Phase::data);
    execution_.has_data = train.next();
    if (!execution_.has_data) break;
    if (!std::exchange(hooks_.batch_begin, true))
      run_.callbacks.on_train_batch_begin(static_cast<std::size_t>(done_), {});
    run_step(train, execution_.steps + 1 == most);
  }
  if (execution_.steps > 0 && execution_.steps < most) replicas_.wait_for_steps();
}

void FitLoop::run_step(Steps& train, bool waits) {
  const RunRequests requests = run_.pop_requests();
  const std::uint64_t before = replicas_.steps();
  try {
    train.run_step(requests, kept_.rate_of(replicas_), waits);
  } catch (const PeerLost&) {
    if (replicas_.steps() > before)
      count_step(requests);
    else
      kept_.unsent_rate = requests.learning_rate;  // to be sent again
    throw;
  }
  count_step(requests);
}

void FitLoop::count_step(const RunRequests& sent) {
  run_.adopt_agreed_rate();
  ++execution_.steps;
  ++made_;
  examples_ += batch_size_;
  phase_ = FitPhase::executing;
  if (elastic_ != nullptr) agreed_ = run_.agreed_requests(sent);
}

void FitLoop::end_execution(int epoch) {
  replicas_.read_sums(running_);
  const std::uint64_t each = options_.verify_every, before = execution_.before;
  if (each > 0 && before / each != replicas_.steps() / each) replicas_.verify();
  const RunRequests agreed = elastic_ != nullptr ? agreed_ : replicas_.agreed_requests();
  const std::uint64_t now = done_ + execution_.steps;
  call_batch_end(now - 1);
  run_.leave_if_evicted();
  requests_ = run_.effective(agreed);
  done_ = now;
  execution_ = {};
  hooks_.batch_begin = false;
  phase_ = FitPhase::between;
  // After the last step of an epoch the checkpoint is saved at the epoch's end.
  if (checkpoints_ && now != run_.numbers.steps && checkpoints_->is_due(before, replicas_.steps()))
    save_checkpoint(epoch, now);
  else if (checkpoints_ && requests_.stop_now)
    save_checkpoint(epoch, now);
}

RunPosition FitLoop::position_of(int epoch, std::uint64_t steps) const {
  RunPosition at{.epoch = epoch,
                 .steps = steps,
                 .pass = first_pass_,
                 .examples = examples_,
                 .first_update = first_update_,
                 .has_ended = ends_,
                 .logs = running_.state()};
  if (!options_.steps_per_epoch) {
    at.pass += static_cast<std::uint64_t>(epoch - first_epoch_);
    if (steps == 0 && execution_.steps == 0) at.examples = 0;
  }
  return at;
}

void FitLoop::save_checkpoint(int epoch, std::uint64_t steps) {
  note(Phase::checkpoint);
  checkpoints_->wait();  // before the copy, so that only one is in memory
  if (!run_.place.is_chief) {
    checkpoints_->skip(replicas_.steps());
    return note(Phase::callback);
  }
  JobState state = job_state();
  state.position = position_of(epoch, steps);
  state.callbacks = run_.callbacks.states();
  checkpoints_->save(std::move(state));
  note(Phase::callback);
}

void FitLoop::end_of_data(int epoch, std::uint64_t done) {
  if (done == 0 && made_ == 0 && !run_.numbers.resumed)
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
  const ElasticRuns::Nesting allowed(elastic_, true);
  const Evaluated found = evaluate_over(run_, validation, options_.validation_steps);
  if (!found.is_complete) return false;
  for (const auto& [name, value] : found.logs) logs_.set("val_" + name, value);
  return true;
}

void FitLoop::exchange_requests() {
  const RunRequests mine = run_.pop_requests();
  try {
    replicas_.exchange_requests(mine);
  } catch (const PeerLost&) {
    kept_.unsent_rate = mine.learning_rate;  // to be sent again
    throw;
  }
  sent_rate_ = mine.learning_rate;
  run_.adopt_agreed_rate();
  const RunRequests agreed = run_.agreed_requests(mine);
  run_.leave_if_evicted();
  requests_ = run_.effective(agreed);
}

void FitLoop::end_epoch(int epoch) {
  note(Phase::callback);
  call_epoch_end(epoch);
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
  phase_ = FitPhase::epoch_end;
  epoch_ = epoch + 1;
  done_ = 0;
  if (elastic_ != nullptr && requests_.admit && !is_last) throw Admission{};
}

void FitLoop::call_batch_end(std::uint64_t last) {
  const auto batch = static_cast<std::size_t>(last);
  if (elastic_ == nullptr) return run_.callbacks.on_train_batch_end(batch, running_.logs());
  if (hooks_.batch_end == made_ && !hooks_.batch_end_exchanges) return;
  hooks_.rate_before = kept_.rate;
  const ElasticRuns::Nesting allowed(elastic_, true);
  const std::uint64_t calls = elastic_->nested_calls();
  run_.callbacks.on_train_batch_end(batch, running_.logs());
  hooks_.batch_end_exchanges = calls != elastic_->nested_calls();
  hooks_.batch_end = made_;
}

void FitLoop::call_epoch_end(int epoch) {
  if (elastic_ == nullptr) return run_.end_epoch(epoch, logs_);
  const bool has_called = hooks_.epoch_end == epoch;
  if (has_called && hooks_.epoch_end_is_done && !hooks_.epoch_end_exchanges) {
    logs_ = hooks_.epoch_logs;
    return;
  }
  if (has_called) {
    run_.callbacks.load_states(hooks_.before.callbacks);
    kept_.rate = hooks_.before.rate;
    kept_.unsent_rate = hooks_.before.unsent_rate;
  } else {
    hooks_.before = {run_.callbacks.states(), kept_.rate, kept_.unsent_rate};
  }
  hooks_.epoch_end = epoch;
  hooks_.epoch_end_is_done = false;
  const ElasticRuns::Nesting allowed(elastic_, true);
  const std::uint64_t calls = elastic_->nested_calls();
  run_.end_epoch(epoch, logs_);
  hooks_.epoch_end_exchanges = calls != elastic_->nested_calls();
  hooks_.epoch_end_is_done = true;
  hooks_.epoch_logs = logs_;
  hooks_.between_epochs = run_.callbacks.states();
}

void FitLoop::run_elastic(Steps& train, Steps* validation, FunctionRef<Signature()> describe) {
  const ElasticRuns::Scope scope(*elastic_, options_.stop);
  const ElasticRuns::Nesting none(elastic_, false);
  ElasticRuns::Entry entry = elastic_->enter(replicas_, kept_);
  if (entry.skip) return;
  std::optional<Recovered> at = std::move(entry.at);
  if (!at) run_.change_workers({}, false);  // `enter` may have joined a generation
  if (checkpoints_) checkpoints_->set_chief(run_.place.is_chief);
  for (;;) {
    std::string why;
    try {
      if (at) continue_at(std::move(*std::exchange(at, std::nullopt)), describe);
      if (phase_ != FitPhase::ended) run_epochs(train, validation, describe);
      phase_ = FitPhase::ended;
      // Again, since the chief may have been lost before it did so.
      if (checkpoints_ && !requests_.stop_now) checkpoints_->finish();
      if (!std::exchange(hooks_.train_end, true)) run_.callbacks.on_train_end(logs_);
      return ElasticRuns::finish(replicas_);
    } catch (const PeerLost& e) {
      why = e.what();
    } catch (const Admission&) {
      why = "a worker joins";
    }
    try {
      at = elastic_->recover(replicas_, why, standing(), elastic_state());
    } catch (const Error& e) {
      if (phase_ != FitPhase::ended) throw;
      return log(LogLevel::warning, e.what());  // the result is complete; the next call throws
    }
    if (at->has_returned) return;
  }
}

RunStanding FitLoop::standing() const {
  return {
      .call = elastic_->call(), .has_begun = has_begun_ ? 1U : 0U, .steps = made_, .phase = phase_};
}

JobState FitLoop::elastic_state() {
  replicas_.read_sums(running_);  // of the current execution so far
  JobState state = job_state();
  state.signature = signature_;  // all of it, for processes that join
  state.position = position_of(epoch_, done_);
  // A process that lacks steps calls the hooks of the epoch's end, so it needs the states before.
  const bool is_before_hooks = phase_ == FitPhase::between && hooks_.epoch_end == epoch_;
  state.callbacks = is_before_hooks ? hooks_.before.callbacks : run_.callbacks.states();
  if (is_before_hooks) state.rate = hooks_.before.rate;
  if (hooks_.epoch_begin == epoch_ && done_ == 0 && execution_.steps == 0) {
    state.callbacks = hooks_.between_epochs;  // a process that joins calls on_epoch_begin, too
    state.rate = hooks_.rate_before_epoch;
  }
  if (checkpoints_) checkpoints_->add_best(state);
  FitPosition{.before = execution_.before,
              .steps = execution_.steps,
              .requests = requests_,
              .agreed = agreed_,
              .rate_before = hooks_.rate_before,
              .last_checkpoint = checkpoints_ ? checkpoints_->last_step() : std::nullopt}
      .add_to(state);
  return state;
}

void FitLoop::continue_at(Recovered at, FunctionRef<Signature()> describe) {
  const bool was_chief = run_.place.is_chief;
  const bool goes_back = !at.is_behind && at.phase >= FitPhase::epoch_end && at.at.phase < at.phase;
  JobState& state = at.state;
  has_begun_ = at.at.has_begun != 0;
  made_ = at.at.steps;
  phase_ = at.at.phase;
  replicas_.discard_pending_steps();
  FitPosition position;
  if (has_begun_) {
    position = FitPosition::take_from(state);
    const RunPosition& p = *state.position;
    first_epoch_ = epoch_ = p.epoch;
    first_pass_ = p.pass;
    examples_ = p.examples;
    first_update_ = p.first_update;
    ends_ = p.has_ended;
    done_ = p.steps;
    execution_ = {.before = position.before, .steps = position.steps};
    requests_ = position.requests;
    agreed_ = position.agreed;
    running_.restore(p.logs);
    kept_.passes = state.passes;
    kept_.totals = state.totals;
    if (at.is_behind) kept_.unsent_rate.reset();
    if (goes_back) go_back();
    kept_.rate = kept_.unsent_rate ? kept_.unsent_rate : state.rate;
    resumed_.reset();
    continues_ = true;
  }
  const TrainingPlace place = replicas_.place();
  if (checkpoints_) checkpoints_->set_chief(place.is_chief);
  const bool is_new_chief = place.is_chief && !was_chief && hooks_.train_begin;
  if (is_new_chief) hooks_.epoch_end_is_done = false;  // its callbacks write the files from now on
  run_.change_workers({.epoch = epoch_,
                       .batch = static_cast<std::size_t>(done_ + execution_.steps),
                       .step = replicas_.steps(),
                       .was_chief = was_chief,
                       .is_chief = place.is_chief},
                      hooks_.train_begin);
  if (!has_begun_) {
    if (at.at.call == elastic_->call()) kept_.restore(state);
    return;
  }
  if (requests_.stop_now && requests_.signal != 0) adopt_signal(requests_.signal);
  if (signature_.empty()) check_signature(state, describe);
  if (at.is_behind) catch_up(state, position);
  // The donor did not save this state, or the last chief may have been lost before it did.
  if ((is_new_chief || at.is_behind) && place.is_chief && checkpoints_ && execution_.steps == 0 &&
      phase_ != FitPhase::ended && checkpoints_->last_step() == replicas_.steps())
    save_checkpoint(epoch_, done_);
}

void FitLoop::go_back() {
  run_.callbacks.load_states(hooks_.between_epochs);
  hooks_.train_end = false;
  const bool repeats_epoch_end = phase_ < FitPhase::epoch_end;
  kept_.unsent_rate = repeats_epoch_end ? sent_rate_ : std::nullopt;
  if (!repeats_epoch_end) return;
  hooks_.epoch_begin = epoch_;  // it may have begun the next one
  hooks_.batch_begin = false;
}

void FitLoop::check_signature(const JobState& state, FunctionRef<Signature()> describe) {
  signature_ = describe();
  signature_.emplace_back("checkpoints", checkpoints_ ? "yes" : "no");
  check_joins(signature_, state.signature);
}

void FitLoop::catch_up(const JobState& state, const FitPosition& position) {
  const bool is_new = !hooks_.train_begin;
  if (is_new) {
    run_.numbers.initial_epoch = first_epoch_;
    run_.numbers.first_step = replicas_.steps();
    run_.numbers.resumed = true;
    run_.callbacks.on_train_begin({});
    hooks_.train_begin = true;
    replicas_.load(state);  // the hooks may have set weights
  } else if (hooks_.batch_begin && execution_.steps == 0) {
    // The donor has made the last step of an execution that failed here.
    kept_.rate = position.rate_before;
    run_.callbacks.on_train_batch_end(static_cast<std::size_t>(done_ - 1), running_.logs());
    hooks_.batch_begin = false;
  }
  if (execution_.steps == 0) hooks_.batch_end = made_;
  if (hooks_.epoch_begin != epoch_ && (done_ > 0 || execution_.steps > 0)) {
    run_.callbacks.on_epoch_begin(epoch_, {});
    hooks_.epoch_begin = epoch_;
  }
  if (execution_.steps > 0 && !std::exchange(hooks_.batch_begin, true))
    run_.callbacks.on_train_batch_begin(static_cast<std::size_t>(done_), {});
  if (is_new) {  // the rate of the job has those of these hooks already
    kept_.rate = state.rate;
    kept_.unsent_rate.reset();
  }
  run_.callbacks.load_states(state.callbacks);
  hooks_.between_epochs = state.callbacks;
  if (checkpoints_) checkpoints_->continue_from(state, position.last_checkpoint);
}

}  // namespace lockstep::detail
