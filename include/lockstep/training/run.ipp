#pragma once

#include "lockstep/training/run.hpp"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/port.hpp"
#include "lockstep/optimizers/schedule.hpp"
#include "lockstep/training/checkpoint/fit_checkpoints.hpp"
#include "lockstep/training/checkpoint/job_state.hpp"
#include "lockstep/training/elastic/elastic_runs.hpp"
#include "lockstep/training/report/step_trace.hpp"
#include "lockstep/training/signal_stop.hpp"
#include "lockstep/training/weights_file.hpp"

namespace lockstep::detail {

void BetweenRuns::set_rate(double to) { rate = unsent_rate = Schedule(to)(0); }

void BetweenRuns::save(JobState& to) const {
  to.rate = rate;
  to.passes = passes;
  to.examples = examples;
  to.totals = totals;
}

JobState BetweenRuns::with(AnyModelState& replicas) const {
  JobState state;
  replicas.save(state);
  save(state);
  return state;
}
JobState BetweenRuns::with_own(AnyModelState& replicas) const {
  JobState state;
  replicas.save_own(state);
  save(state);
  return state;
}
void BetweenRuns::restore(const JobState& from) {
  rate = from.rate;
  unsent_rate.reset();  // all processes have the same rate now
  passes = from.passes;
  examples = from.examples;
  read_from.reset();
  totals = from.totals;
}

Run::Run(AnyReplicas& all, BetweenRuns& between, const std::vector<std::shared_ptr<Callback>>& user,
         ProgressStyle progress, const std::stop_token& stop)
    : replicas(all),
      kept(between),
      token(stop),
      signal_before(reported_signal()),
      place(all.place()),
      reports(progress),
      callbacks(user) {
  numbers.metrics = replicas.begin_logs().names();
  numbers.rank = static_cast<int>(place.rank);
  numbers.replicas = static_cast<int>(place.replicas);
  numbers.first_step = replicas.steps();
  replicas.clear_requests();
  replicas.discard_pending_steps();
  const auto is_progress = [](const auto& callback) {
    return dynamic_cast<const Progress*>(callback.get()) != nullptr;
  };
  // Any process of an elastic job may become the chief.
  if (progress != ProgressStyle::none && (place.is_chief || replicas.elastic() != nullptr) &&
      std::none_of(user.begin(), user.end(), is_progress))
    callbacks.add(reports);
  callbacks.set_control(this);
}

Run::~Run() {
  if (trace) try {  // an exception ends the run
      replicas.record(nullptr, 0);
    } catch (...) {  // the device is lost; the exception in flight names the cause
    }
  replicas.note(Phase::idle);
}

RunRequests Run::requests() const {
  const bool admit = admits && replicas.has_newcomers();
  if (!token.stop_requested()) return {.end_training = stopped, .admit = admit};
  // An old signal did not stop this run, unless the token is that of the SignalStop.
  const int signal = signal_before == 0 ? reported_signal() : reported_signal(token);
  const bool is_termination = signal != 0 && signal != SIGINT;
  return {.stop_now = true,
          .end_training = stopped,
          .signal = signal,
          .admit = admit,
          .chief_terminated = is_termination && place.is_chief,
          .owner_terminated = is_termination && place.owns};
}

RunRequests Run::effective(const RunRequests& agreed) const {
  if (agreed.stop_now && agreed.signal != 0) adopt_signal(agreed.signal);
  if (!place.is_alone) return agreed;
  RunRequests all = requests();
  // The last worker of an elastic job acts on what the others have agreed to.
  all.stop_now = all.stop_now || agreed.stop_now;
  all.end_training = all.end_training || agreed.end_training;
  if (all.signal == 0) all.signal = agreed.signal;
  return all;
}

RunRequests Run::agreed_requests(const RunRequests& mine) {
  RunRequests agreed = replicas.agreed_requests();
  if (replicas.elastic() == nullptr || agreed.terminated == 0 ||
      agreed.stopping != agreed.terminated)
    return agreed;
  const std::size_t left = place.workers - agreed.terminated / place.replicas_of_each;
  // With servers each process has one replica. One that leaves and does not own may be the chief.
  const std::size_t leaving = agreed.terminated - agreed.owners_terminated;
  const std::size_t workers_left =
      place.has_servers ? place.replicas - std::min(place.replicas, leaving) : left;
  const std::size_t owners = agreed.owners_terminated / place.replicas_of_each;
  const bool keeps_ranges = place.owner_copies == 0 || owners < place.owner_copies;
  // Those that leave do not vote; see Quorum.
  const bool is_half_with_chief = 2 * left == place.workers && !agreed.chief_terminated;
  const bool can_go_on = place.is_one_machine || 2 * left > place.workers || is_half_with_chief;
  if (workers_left < place.min_workers || !keeps_ranges || !can_go_on) return agreed;
  if (mine.stop_now) evicted_by = mine.signal;
  agreed.stop_now = false;
  agreed.signal = 0;
  return agreed;
}

void Run::leave_if_evicted() const {
  if (evicted_by != 0) throw Evicted(evicted_by);
}

RunRequests Run::pop_requests() {
  RunRequests popped = requests();
  if (!place.is_one_process) popped.learning_rate = std::exchange(kept.unsent_rate, std::nullopt);
  return popped;
}
void Run::adopt_agreed_rate(const RunRequests& agreed) {
  if (agreed.learning_rate) kept.rate = agreed.learning_rate;
}

void Run::change_place() {
  place = replicas.place();
  numbers.rank = static_cast<int>(place.rank);
  numbers.replicas = static_cast<int>(place.replicas);
}

void Run::stop_training() { stopped = true; }
bool Run::stop_requested() const { return stopped; }
double Run::learning_rate() const { return kept.rate_of(replicas); }
void Run::set_learning_rate(double rate) { kept.set_rate(rate); }
void Run::log(std::string_view name, double value) {
  if (!is_at_epoch_end)
    throw UsageError("callback: log('{}') was called outside of on_epoch_end; call it there", name);
  added.set(name, value);
}
void Run::check_whole(const char* call) const {
  if (is_in_phase)
    throw UsageError(
        "callback: {} was called between steps that servers make in a phase (.asynchronous or "
        ".backup_workers), while no process has all weights; set "
        ".steps_per_execution = K, after which all have them, or call it in on_epoch_end",
        call);
}
std::vector<std::byte> Run::weights() const {
  check_whole("weights");
  return replicas.copy();
}
bool Run::is_finite() const { return is_in_phase || is_within_round || replicas.is_finite(); }
std::string Run::not_finite() const { return is_in_phase ? "" : replicas.not_finite(); }
std::vector<NamedTensor> Run::tensors() const {
  check_whole("tensors");
  return replicas.tensors();
}
void Run::set_weights(std::span<const std::byte> copy) {
  check_whole("set_weights");
  replicas.restore(copy);
}
void Run::save_weights(const std::string& path) {
  check_whole("save_weights");
  if (!place.is_chief) return check_membership();
  const std::vector<std::byte> parameters = replicas.copy();
  const StateLayout layout = replicas.layout();
  const std::span all(parameters);
  write_weights(path, replicas.parameters(),
                {layout.type, all.first(layout.weights), all.subspan(layout.weights)},
                [this] { check_membership(); });
}
void Run::write_checkpoint(const std::string& directory, std::size_t keep) {
  const CheckpointPort& port = checkpoint_port();
  check_whole("write_checkpoint");
  check_membership();
  if (!place.is_chief && replicas.is_whole()) return;
  JobState state = kept.with(replicas);
  if (place.is_chief) port.save(replicas, std::move(state), directory, keep);
}
void Run::check_membership() {
  // Hooks that a process calls alone, when it joins, write nothing.
  if (ElasticRuns* const elastic = replicas.elastic(); elastic && elastic->allows_nested())
    ElasticRuns::finish(replicas);
}
void Run::set_trainable(const std::vector<std::string>& layers, bool on) {
  check_whole("set_trainable");
  replicas.set_trainable(layers, on);
}
void Run::swap_averages(bool averages) {
  check_whole("swap_averages");
  replicas.swap_averages(averages);
}
const TrainingParams& Run::params() const { return numbers; }
bool Run::may_log(std::string_view name) const {
  const auto is_logged = [&](std::string_view own) {
    return std::find(numbers.metrics.begin(), numbers.metrics.end(), own) != numbers.metrics.end();
  };
  return is_logged(name) ||
         (numbers.has_validation && name.starts_with("val_") && is_logged(name.substr(4))) ||
         callbacks.may_log(name);
}
Architecture Run::architecture() const { return replicas.architecture(); }

void Run::start_trace(std::uint64_t steps) {
  if (replicas.elastic() != nullptr)
    throw UsageError(
        "callback: an elastic job cannot be traced, since its workers change; leave out ls::Trace, "
        "or .elastic");
  if (trace)
    throw UsageError(
        "callback: a trace is active; end it before the next one, and use one ls::Trace");
  const TracePort* const traces = port<TracePort>();
  if (traces == nullptr)
    throw UsageError(
        "callback: this program was built without traces; add #include <lockstep/trace.hpp>");
  check_whole("begin_trace");
  trace = traces->make();
  replicas.record(trace, steps);
}

std::string Run::end_trace() {
  if (!trace) return TrainingControl::end_trace();
  replicas.record(nullptr, 0);
  const std::shared_ptr<StepTrace> made = std::move(trace);
  return made->gathered(replicas);
}

void Run::end_epoch(int epoch, Logs& logs) {
  is_at_epoch_end = true;
  added.clear();  // a hook that lost a peer may be called again
  callbacks.on_epoch_end(epoch, logs, [&] {
    for (const auto& [name, value] : added) logs.set(name, value);
    added.clear();
  });
  is_at_epoch_end = false;
}

}  // namespace lockstep::detail
