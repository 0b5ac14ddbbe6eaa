#pragma once

#include "lockstep/training/fit_loop.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process/threads.hpp"
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
      round_(replicas.steps_of_round()),
      data_size_(examples) {
  if (ElasticRuns* const elastic = replicas.elastic()) {
    if (elastic->is_in_call())
      elastic->check_nested_call();
    else
      run_.admits = true;
  }
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
    checkpoints_ = checkpoint_port().make(
        request != nullptr ? request->options() : options_.checkpoint,
        request != nullptr && request->removes(), replicas_, run_.numbers.metrics);
}

FitLoop::~FitLoop() = default;

History FitLoop::run(Steps& train, Steps* validation, FunctionRef<Signature()> describe) {
  train_ = &train;
  validation_ = validation;
  describe_ = describe;
  run_.numbers.has_validation = validation != nullptr;
  try {
    if (run_.admits)
      replicas_.elastic()->fit(*this, replicas_, kept_, options_.stop);
    else
      run_epochs();
  } catch (...) {
    // Now: the destructor waits until a checkpoint is on disk.
    replicas_.fail(current_error());
    replicas_.discard_round();  // the program may go on with the model
    throw;
  }
  return std::move(history_);
}

void FitLoop::run_epochs() {
  if (!has_begun_) begin();
  if (is_after_epoch_) save_after_epoch();
  for (int epoch = first_epoch_; epoch < options_.epochs && !ends_ && !requests_.stop_now;
       ++epoch) {
    begin_epoch(epoch);
    const bool has_trained = train_epoch(epoch);
    if (requests_.stop_now || !has_trained) break;  // an unfinished epoch has no logs
    store_epoch_logs();
    if (validation_ != nullptr && (epoch + 1) % options_.validation_freq == 0 && !validate() &&
        checkpoints_) {
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
  replicas_.verify();
  end_run();
}

void FitLoop::end_run() {
  if (replicas_.updates() > first_update_) replicas_.overwrite_with_averages();
  if (resumed_) restore_callbacks();  // no epoch is left to train
  run_.callbacks.on_train_end(logs_);
}

void FitLoop::begin_again() {
  first_epoch_ = options_.initial_epoch;
  first_pass_ = detail::first_pass(kept_.passes, options_);
  ends_ = false;
  resumed_.reset();
}

void FitLoop::begin() {
  const TrainingPlace& place = run_.place;
  kept_.examples = 0;  // a pass that the program's own loop has left is not continued
  first_update_ = replicas_.updates();
  if (!place.is_one_process || checkpoints_) {
    signature_ = describe_();
    complete_signature();
  }
  compare_signatures(replicas_, "fit", signature_);
  examples_ = options_.steps_per_epoch ? examples_before(batch_size_, options_) : 0;
  if (checkpoints_) {
    checkpoints_->warn_if_never_logged(run_);
    resume();
  }
  replicas_.swap_averages(false);
  if (options_.steps_per_epoch) train_->begin({replicas_.seed(), first_pass_}, examples_);
  replicas_.verify();
  if (place.replicas > 1 && place.is_chief && options_.progress != ProgressStyle::none)
    log(LogLevel::info,
        start_line(place.strategy, place.replicas, place.virtual_shards, batch_size_));
  note(Phase::callback);
  if (!std::exchange(has_called_begin_, true)) run_.callbacks.on_train_begin({});
  epoch_ = first_epoch_;
  if (resumed_ && resumed_->position->steps == 0) restore_callbacks();
  if (resumed_) return;  // within an epoch, whose hook comes first
  has_begun_ = true;
  note_boundary();
}

void FitLoop::complete_signature() {
  signature_.emplace_back("training step",
                          train_->is_of_program() ? "the program's" : "the library's");
  signature_.emplace_back("checkpoints", checkpoints_ ? checkpoints_->described() : "none");
  if (replicas_.elastic() != nullptr)
    signature_.emplace_back("callbacks that write files", describe_writes(options_));
}

void FitLoop::add_order_of_examples(Signature& to) const {
  for (const auto& field : signature_)
    for (const std::string_view name :
         {"training examples", "global batch", "order of the examples", "weights",
          "steps per epoch", "features of the examples", "targets of the examples",
          "weights of the examples"})
      if (field.first == name) to.push_back(field);
}

JobState FitLoop::own_state() const {
  JobState state = kept_.with_own(replicas_);
  add_order_of_examples(state.signature);
  return state;
}

JobState FitLoop::model_state() const {
  JobState state = kept_.with(replicas_);
  add_order_of_examples(state.signature);
  return state;
}

void FitLoop::add_run(JobState& to, RunPosition at) const {
  to.position = std::move(at);
  to.callbacks = run_.callbacks.states();
  if (checkpoints_) to.best = checkpoints_->best();
}

void FitLoop::resume() {
  note(Phase::checkpoint);
  std::string notes;
  StateLayout job = replicas_.layout();
  add_order_of_examples(job.signature);
  job.totals = kept_.totals.size();
  std::optional<JobState> loaded = checkpoints_->begin(job, notes);
  if (!loaded) return;
  JobState& state = resumed_.emplace(std::move(*loaded));
  replicas_.load(state);
  kept_.restore(state);
  kept_.examples = 0;
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
  // A worker makes an asynchronous step alone, however many there are.
  const bool is_divided_alike = state.replicas == run_.place.replicas ||
                                run_.place.virtual_shards > 0 || train_->asynchronous() != nullptr;
  if (!is_divided_alike)
    add_item(notes, "; ",
             format_text("it has {} replicas and had {}", run_.place.replicas, state.replicas));
  if (!notes.empty()) log(LogLevel::warning, rounding_line(checkpoints_->directory(), notes));
}

void FitLoop::restore_callbacks() {
  const JobState state = std::move(*resumed_);
  resumed_.reset();
  std::string left;
  for (const std::string& name : run_.callbacks.load_states(state.callbacks))
    add_item(left, ", ", name);
  if (!left.empty() && run_.place.is_chief)
    log(LogLevel::warning,
        format_text("checkpoint {}: it has the state of {}, but fit has no such callback",
                    checkpoints_->directory(), left));
  kept_.rate = state.rate;
  kept_.unsent_rate.reset();
}

void FitLoop::begin_epoch(int epoch) {
  note(Phase::callback);
  epoch_ = epoch;
  const bool continues = std::exchange(continues_, false);
  if (!continues || !is_within_epoch()) run_.callbacks.on_epoch_begin(epoch, {});
  const auto done = static_cast<std::uint64_t>(epoch - first_epoch_);
  const std::uint64_t pass = first_pass_ + (options_.steps_per_epoch ? 0 : done);
  if (continues) {
    if (!is_within_epoch()) running_.reset();
    train_->begin({replicas_.seed(), pass}, examples_);
  } else {
    running_.reset();
    done_ = 0;
    if (!options_.steps_per_epoch) {
      if (!resumed_) examples_ = 0;
      train_->begin({replicas_.seed(), pass}, examples_);
    }
  }
  kept_.passes = std::max(kept_.passes, pass + 1);  // a hook may have trained on later passes
}

bool FitLoop::train_epoch(int epoch) {
  if (resumed_) {
    done_ = resumed_->position->steps;
    running_.restore(resumed_->position->logs);
    restore_callbacks();
    has_begun_ = true;
    note_boundary();
  }
  AsynchronousPhase* const phase = train_->asynchronous();
  while (done_ < most_steps_ && !requests_.end_training && !requests_.stop_now) {
    if (phase != nullptr)
      phase->run(*this);
    else
      execute();
    const bool has_data = execution_.has_data;
    if (execution_.steps > 0 || execution_.is_complete) {
      end_execution(epoch, (phase == nullptr && round_ == 0) || options_.steps_per_execution > 1);
      if (requests_.end_training || requests_.stop_now) break;
      if (run_.admits && requests_.admit) throw Admission{};
    }
    if (!has_data) {
      end_of_data(epoch, done_);
      break;
    }
  }
  epoch_steps_ = done_;
  return done_ > 0;
}

void FitLoop::execute() {
  const std::uint64_t most = std::min(steps_of_execution(), most_steps_ - done_);
  if (execution_.steps == 0) execution_ = {.before = replicas_.steps()};
  first_update_ = std::min(first_update_, replicas_.updates());  // a hook may reset the optimizer
  // A run that stops and continues has the bits of one that does not, so a round is not cut short.
  const auto may_stop = [&] {
    return execution_.steps > 0 && (round_ == 0 || execution_.steps % round_ == 0);
  };
  while (execution_.steps < most && !(may_stop() && run_.stops_without_peers())) {
    CancellationDeferred::point();
    note(Phase::data);
    execution_.has_data = train_->next();
    if (!execution_.has_data) break;
    if (execution_.steps == 0 && !calls_each_of_round())
      run_.callbacks.on_train_batch_begin(static_cast<std::size_t>(done_), {});
    run_step(execution_.steps + 1 == most);
    if (round_ > 0 && execution_.steps % round_ == 0) end_round();
  }
  if (execution_.steps > 0 && execution_.steps < most) replicas_.wait_for_steps();
  if (round_ > 0 && execution_.steps % round_ > 0) end_round();
}

std::uint64_t FitLoop::steps_of_execution() const {
  const std::uint64_t asked = options_.steps_per_execution;
  return round_ == 0 || asked % round_ == 0 ? asked : (asked / round_ + 1) * round_;
}

void FitLoop::end_round() {
  const RunRequests mine = run_.pop_requests();
  replicas_.end_round(mine);
  agreed_ = run_.agreed_requests(mine);
  run_.adopt_agreed_rate(agreed_);
  if (!calls_each_of_round()) return;
  std::vector<Logs> logs;
  while (logs.size() < execution_.steps) {
    replicas_.read_step(running_);
    logs.push_back(running_.logs());
  }
  replicas_.read_sums(running_);  // none is pending while a hook evaluates
  const Run::TogetherHooks together(run_);
  for (std::size_t i = 0; i < logs.size(); ++i) {
    const std::size_t step = static_cast<std::size_t>(done_) + i;
    run_.is_within_round = i + 1 < logs.size();
    replicas_.point_to(i);
    run_.callbacks.on_train_batch_begin(step, {});
    run_.callbacks.on_train_batch_end(step, logs[i]);
  }
}

void FitLoop::run_step(bool waits) {
  const RunRequests requests = round_ > 0 ? RunRequests{} : run_.pop_requests();
  const std::uint64_t before = replicas_.steps();
  // A step of the program may fail after a change of the model, which is undone at the boundary.
  const bool is_one_exchange = !train_->is_of_program();
  if (driver_ != nullptr && is_one_exchange) driver_->begin_step();
  if (driver_ != nullptr && !is_one_exchange && execution_.steps > 0) {
    replicas_.read_sums(running_);
    note_boundary();
  }
  try {
    train_->run_step(requests, kept_.rate_of(replicas_), waits);
  } catch (const PeerLost&) {
    if (is_one_exchange && replicas_.steps() > before) count_step(requests);
    throw;
  }
  count_step(requests);
}

void FitLoop::count_step(const RunRequests& sent) {
  ++execution_.steps;
  ++boundaries_;
  examples_ += batch_size_;
  agreed_ = run_.admits ? run_.agreed_requests(sent) : replicas_.agreed_requests();
  run_.adopt_agreed_rate(agreed_);
}

void FitLoop::end_execution(int epoch, bool calls_hook) {
  replicas_.read_sums(running_);
  note_boundary();
  const std::uint64_t each = options_.verify_every, before = execution_.before;
  if (each > 0 && before / each != replicas_.steps() / each) replicas_.verify();
  const std::uint64_t now = done_ + execution_.steps;
  if (calls_hook && execution_.steps > 0) {
    const Run::TogetherHooks together(run_);
    run_.callbacks.on_train_batch_end(static_cast<std::size_t>(now - 1), running_.logs());
  }
  run_.leave_if_evicted();
  requests_ = run_.effective(agreed_);
  done_ = now;
  execution_ = {};
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
  replicas_.verify();    // a hook may have changed the weights
  checkpoints_->wait();  // before the copy, so that only one is in memory
  if (!run_.place.is_chief) {
    if (!replicas_.is_whole()) model_state();  // the chief needs this process' part
    checkpoints_->skip(replicas_.steps());
    return note(Phase::callback);
  }
  JobState state = model_state();
  add_run(state, position_of(epoch, steps));
  checkpoints_->save(std::move(state));
  note(Phase::callback);
}

void FitLoop::end_of_data(int epoch, std::uint64_t done) {
  if (done == 0 && boundaries_ == 0 && !run_.numbers.resumed)
    throw UsageError(
        "fit: no data left for epoch {}; lower .initial_epoch, or add ls::repeat before ls::batch",
        epoch + 1);
  if (!options_.steps_per_epoch) return;
  log(LogLevel::warning,
      format_text(
          "fit: the data ran out in epoch {} after step {}, so training ends; add ls::repeat "
          "before ls::batch",
          epoch + 1, done));
  ran_out_ = true;
}

void FitLoop::store_epoch_logs() {
  logs_.clear();
  for (const auto& [name, value] : running_.logs()) logs_.set(name, value);
  if (AsynchronousPhase* const phase = train_->asynchronous()) phase->add_counts(logs_);
  kept_.totals = running_.totals();
}

bool FitLoop::validate() {
  const Run::TogetherHooks together(run_);
  const Evaluated found = evaluate_over(run_, *validation_, options_.validation_steps);
  if (!found.is_complete) return false;
  for (const auto& [name, value] : found.logs) logs_.set("val_" + name, value);
  return true;
}

void FitLoop::exchange_requests() {
  const RunRequests mine = run_.pop_requests();
  replicas_.exchange_requests(mine);
  const RunRequests agreed = run_.agreed_requests(mine);
  run_.adopt_agreed_rate(agreed);
  run_.leave_if_evicted();
  requests_ = run_.effective(agreed);
}

void FitLoop::warn_if_not_finite(int epoch) {
  // A run that is about to stop has had its message, from TerminateOnNaN.
  if (has_warned_ || !run_.place.is_chief || run_.stop_requested() || replicas_.is_finite()) return;
  const std::string what = replicas_.not_finite();
  if (what.empty()) return;  // is_finite() sums squares, which overflow for large doubles
  has_warned_ = true;
  log(LogLevel::warning,
      format_text("fit: not finite after epoch {}: {}; search the data for NaN (.check_finite of "
                  "read_csv), lower the learning rate, or clip the gradients; "
                  "ls::TerminateOnNaN{{}} ends training at the first such step and names it",
                  epoch + 1, what));
}

void FitLoop::end_epoch(int epoch) {
  note(Phase::callback);
  warn_if_not_finite(epoch);
  replicas_.verify();  // before hooks save the weights
  {
    const Run::TogetherHooks together(run_);
    run_.end_epoch(epoch, logs_);
  }
  replicas_.end_epoch(epoch);
  exchange_requests();
  ends_ = requests_.end_training || ran_out_;
  if (checkpoints_) checkpoints_->note_epoch(logs_, replicas_.steps());
  ++boundaries_;
  epoch_ = epoch + 1;
  done_ = 0;
  note_boundary();
  save_after_epoch();
}

void FitLoop::save_after_epoch() {
  is_after_epoch_ = false;
  if (!checkpoints_) return;
  const bool is_last = ends_ || requests_.stop_now || epoch_ == options_.epochs;
  const std::uint64_t last = checkpoints_->last_step().value_or(0);
  if (is_last || checkpoints_->is_due_after_epochs() ||
      checkpoints_->is_due(last, replicas_.steps()))
    save_checkpoint(epoch_, 0);
}

void FitLoop::save(JobState& to) {
  RunPosition at = position_of(epoch_, done_);
  at.execution = {.before = execution_.before,
                  .steps = execution_.steps,
                  .requests = requests_.lasting(),
                  .agreed = agreed_.lasting(),
                  .last_checkpoint = checkpoints_ ? checkpoints_->last_step() : std::nullopt,
                  .ahead = made_.ahead,
                  .is_complete = execution_.is_complete};
  kept_.save(to);
  add_run(to, std::move(at));
}

bool FitLoop::move_to(const JobState& state, std::uint64_t boundaries) {
  if (!state.position || !state.position->execution)
    throw Error(
        "elastic: the state of another worker has no position within fit; make the same calls in "
        "the same order in all workers");
  const RunPosition& position = *state.position;
  const ExecutionPosition& within = *position.execution;
  has_begun_ = true;
  boundaries_ = boundaries;
  first_epoch_ = epoch_ = position.epoch;
  first_pass_ = position.pass;
  examples_ = position.examples;
  first_update_ = position.first_update;
  ends_ = position.has_ended;
  done_ = position.steps;
  execution_ = {.before = within.before, .steps = within.steps, .is_complete = within.is_complete};
  made_ = {};
  if (!within.is_complete)
    made_ = {within.steps - std::min<std::uint64_t>(within.steps, within.ahead.size()),
             within.ahead};
  requests_ = within.requests;
  agreed_ = within.agreed;
  running_.restore(position.logs);
  resumed_.reset();
  ran_out_ = false;
  continues_ = true;
  is_after_epoch_ = boundaries_ > 0 && !is_within_epoch();
  if (signature_.empty()) {
    signature_ = describe_();
    remove_generated(signature_);
    complete_signature();
    check_joins(signature_, state.signature);
  }
  return call_begin_hooks();
}

bool FitLoop::call_begin_hooks() {
  const bool is_new = !std::exchange(has_called_begin_, true);
  if (is_new) {
    run_.numbers.initial_epoch = first_epoch_;
    run_.numbers.first_step = replicas_.steps();
    run_.numbers.resumed = run_.numbers.resumed || boundaries_ > 0;
    run_.callbacks.on_train_begin({});
  }
  if (!is_within_epoch()) return is_new;  // the epoch begins after the boundary
  run_.callbacks.on_epoch_begin(epoch_, {});
  const bool is_within = execution_.steps > 0 &&
                         (train_->asynchronous() == nullptr || options_.steps_per_execution > 1);
  if (is_within) run_.callbacks.on_train_batch_begin(static_cast<std::size_t>(done_), {});
  return is_new;
}

void FitLoop::restore(const JobState& state) {
  run_.callbacks.load_states(state.callbacks);
  kept_.restore(state);
  if (checkpoints_) checkpoints_->continue_from(state, state.position->execution->last_checkpoint);
  if (requests_.stop_now && requests_.signal != 0) adopt_signal(requests_.signal);
}

void FitLoop::change_place() {
  run_.change_place();
  if (checkpoints_) checkpoints_->set_chief(run_.place.is_chief);
}

void FitLoop::report_change(bool was_chief) {
  run_.callbacks.on_workers_change({.epoch = epoch_,
                                    .batch = static_cast<std::size_t>(done_ + execution_.steps),
                                    .step = replicas_.steps(),
                                    .was_chief = was_chief,
                                    .is_chief = run_.place.is_chief});
}

}  // namespace lockstep::detail
