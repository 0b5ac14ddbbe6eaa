/// \file
/// The loop of `Model::fit`: epochs, each a sequence of executions of one or more steps, with
/// validation after an epoch. Invariants: callback hooks are called in Keras' order; all processes
/// of a job follow the same path through the loop.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/core/phase.hpp"
#include "lockstep/training/callbacks/callback_list.hpp"
#include "lockstep/training/checkpoint/checkpoints.hpp"
#include "lockstep/training/checks/model_signature.hpp"
#include "lockstep/training/checks/run_checks.hpp"
#include "lockstep/training/elastic/elastic_runs.hpp"
#include "lockstep/training/elastic/fit_position.hpp"
#include "lockstep/training/evaluation.hpp"
#include "lockstep/training/fit_options.hpp"
#include "lockstep/training/history.hpp"
#include "lockstep/training/run.hpp"
#include "lockstep/training/step/batches.hpp"

namespace lockstep::detail {

/// One call of `fit`.
///
///     resume: state from the newest checkpoint
///     on_train_begin
///     for each epoch:
///       on_epoch_begin
///       for each execution:                 steps_per_execution steps, one hook before and after
///         on_train_batch_begin; steps; on_train_batch_end; checkpoint?; stop?
///       validation                          on_test_begin ... on_test_end
///       on_epoch_end; exchange of requests; checkpoint?; stop?
///     on_train_end
///
/// In an elastic job a loss within the run makes it continue at the position of the donor's state,
/// see ElasticRuns; the hooks that this process has called for that position are not repeated:
///
///     run_epochs ── PeerLost ── recover ── continue_at ── run_epochs
class FitLoop {
 public:
  /// Checks the options. `examples`: size of the training data; nullopt if they never end.
  /// \throws UsageError.
  LOCKSTEP_COLD_DECL FitLoop(AnyReplicas& replicas, BetweenRuns& kept,
                             std::optional<std::uint64_t> examples, std::size_t batch,
                             const FitOptions& options);

  FitLoop(const FitLoop&) = delete;
  FitLoop& operator=(const FitLoop&) = delete;
  LOCKSTEP_COLD_DECL ~FitLoop();

  /// Number of the pass that the first epoch reads.
  std::uint64_t first_pass() const { return first_pass_; }

  /// Runs the loop. `validation` may be null. `describe()` returns the fit's signature, which the
  /// processes of the job compare, and which checkpoints contain.
  LOCKSTEP_COLD_DECL History run(Steps& train, Steps* validation,
                                 FunctionRef<Signature()> describe);

 private:
  LOCKSTEP_COLD_DECL void run_epochs(Steps& train, Steps* validation,
                                     FunctionRef<Signature()> describe);
  LOCKSTEP_COLD_DECL void run_elastic(Steps& train, Steps* validation,
                                      FunctionRef<Signature()> describe);
  /// Compares signatures and weights across processes, continues from a checkpoint, prepares the
  /// data, calls on_train_begin.
  LOCKSTEP_COLD_DECL void begin(Steps& train, FunctionRef<Signature()> describe);
  /// Loads the newest checkpoint, if there is one, and moves to its position.
  LOCKSTEP_COLD_DECL void resume();
  /// Restores the callbacks' states, and the rate, which their hooks may have changed.
  LOCKSTEP_COLD_DECL void restore_callbacks();
  LOCKSTEP_COLD_DECL void begin_epoch(Steps& train, int epoch);
  /// Trains an epoch, until it ends or a stop is requested. \returns false if no step was made.
  LOCKSTEP_DECL bool train_epoch(Steps& train, int epoch);

  /// Steps without a hook between them (steps_per_execution).
  struct Execution {
    std::uint64_t before = 0;  ///< replicas_.steps() before the first one
    std::uint64_t steps = 0;   ///< made
    bool has_data = true;      ///< false: the data ended
  };
  /// Trains the steps of one execution, or the rest of one that a loss has interrupted.
  LOCKSTEP_DECL void execute(Steps& train);
  /// Trains one step. A step of an elastic job that throws has either been made, and counts, or has
  /// left no trace.
  LOCKSTEP_DECL void run_step(Steps& train, bool waits);
  /// `sent`: the requests that travelled with it.
  LOCKSTEP_DECL void count_step(const RunRequests& sent);
  /// Reads the sums, verifies the replicas if due, calls on_train_batch_end, saves a checkpoint if
  /// due.
  LOCKSTEP_DECL void end_execution(int epoch);
  /// Handles the end of the data after `done` steps of an epoch. \throws UsageError if the first
  /// epoch had no data at all.
  LOCKSTEP_COLD_DECL void end_of_data(int epoch, std::uint64_t done);

  /// Copies the running values to the epoch's logs, without the values of the last step.
  LOCKSTEP_COLD_DECL void store_epoch_logs();
  /// Evaluates and adds "val_..." to the epoch's logs. \returns false if the evaluation was stopped.
  LOCKSTEP_COLD_DECL bool validate(Steps& validation);
  /// Calls on_epoch_end and exchanges the requests that it made; saves a checkpoint if due.
  LOCKSTEP_COLD_DECL void end_epoch(int epoch);
  /// Exchanges the requests of all processes outside of a step.
  LOCKSTEP_COLD_DECL void exchange_requests();
  /// The signature and what a checkpoint needs to know of the model before it is loaded.
  LOCKSTEP_COLD_DECL JobState job_state() const;
  /// Saves a checkpoint before step `steps` of an epoch, both counted from 0.
  LOCKSTEP_COLD_DECL void save_checkpoint(int epoch, std::uint64_t steps);
  void note(Phase phase) { replicas_.note(phase); }

  // --- of an elastic job ---

  /// Thrown between two steps, to admit processes that wait to join.
  struct Admission {};
  /// State that hooks may change, before those of an epoch's end.
  struct BeforeHooks {
    CallbackList::States callbacks;
    std::optional<double> rate, unsent_rate;
  };
  /// The hooks that this process has called last.
  struct Hooks {
    bool train_begin = false, train_end = false;
    int epoch_begin = -1;              // number of the epoch
    bool batch_begin = false;          // of an execution whose batch_end is to come
    std::uint64_t batch_end = 0;       // steps of the run after the execution; 0: none yet
    int epoch_end = -1;                // begun
    bool epoch_end_is_done = false;    // and returned from
    bool batch_end_exchanges = false;  // the hook made a collective call: all repeat it, or none
    bool epoch_end_exchanges = false;
    Logs epoch_logs;                          // after epoch_end
    CallbackList::States between_epochs;      // states after epoch_end, or train_begin
    std::optional<double> rate_before_epoch;  // before on_epoch_begin
    BeforeHooks before{};                     // of epoch_end
    std::optional<double> rate_before;        // of batch_end
  };
  /// Calls on_train_batch_end, unless this process has done so.
  LOCKSTEP_DECL void call_batch_end(std::uint64_t last);
  /// Calls on_epoch_end, unless this process has done so.
  LOCKSTEP_COLD_DECL void call_epoch_end(int epoch);
  LOCKSTEP_COLD_DECL RunStanding standing() const;
  /// The state at `standing()`.
  LOCKSTEP_COLD_DECL JobState elastic_state();
  LOCKSTEP_COLD_DECL RunPosition position_of(int epoch, std::uint64_t steps) const;
  /// Moves to the position that the job continues at.
  LOCKSTEP_COLD_DECL void continue_at(Recovered at, FunctionRef<Signature()> describe);
  /// Undoes what the hooks did after an epoch's end, or at the end of the call, which the donor has
  /// not reached.
  LOCKSTEP_COLD_DECL void go_back();
  /// \throws UsageError if this process' fit differs from that of the job that it joins.
  LOCKSTEP_COLD_DECL void check_signature(const JobState& state, FunctionRef<Signature()> describe);
  /// Calls the hooks that a process has missed, or not called yet, and loads the callbacks' states.
  LOCKSTEP_COLD_DECL void catch_up(const JobState& state, const FitPosition& position);

  AnyReplicas& replicas_;
  BetweenRuns& kept_;
  const std::size_t batch_size_;
  const FitOptions& options_;
  History history_;  // must outlive run_, which holds a pointer to it
  Run run_;
  RunningLogs running_;
  std::uint64_t first_pass_;  // of epoch first_epoch_
  int first_epoch_;
  // A member, since g++ 12 at -O3 warns of an uninitialized optional if the loop reads it there.
  const std::uint64_t most_steps_;
  std::uint64_t first_update_ = 0;  // minimum of updates() since the start of the run
  Logs logs_;                       // of the last epoch
  Execution execution_{};           // the current one; no steps between two
  std::uint64_t done_ = 0;          // steps of the current epoch before it
  std::uint64_t made_ = 0;          // steps of the run
  int epoch_ = 0;                   // the current one
  RunRequests requests_;            // effective after the last execution or epoch
  Signature signature_;             // what a checkpoint's job must have in common with this one
  std::optional<Checkpoints> checkpoints_;
  std::optional<JobState> resumed_;  // until its epoch has begun
  std::uint64_t examples_ = 0;       // of the current pass so far
  std::uint64_t epoch_steps_ = 0;    // of the last epoch
  bool ran_out_ = false;             // the data ended before the epoch did
  bool ends_ = false;                // no further epoch
  ElasticRuns* elastic_;             // null: a loss ends the run
  bool has_begun_ = false;           // all processes have passed `begin`
  bool continues_ = false;           // within an epoch that has begun, at a position
  FitPhase phase_ = FitPhase::executing;
  RunRequests agreed_;               // of the last step
  std::optional<double> sent_rate_;  // at the end of the last epoch
  Hooks hooks_;
};

/// Stands for absent validation data, so that no evaluation code is compiled.
struct NoValidation {};

/// Checks options and data, allocates memory for batches, and trains.
template <class Replicas, class Train, class Validation>
History run_fit(Replicas& replicas, BetweenRuns& kept, const Train& train,
                const Validation& validation, const FitOptions& options) {
  constexpr bool validates = !std::same_as<Validation, NoValidation>;
  FitLoop loop(replicas, kept, train.size(), train.batch_size(), options);
  check_class_weights<typename Replicas::Network, typename Replicas::Loss>(options.class_weight);
  if constexpr (!HostDevice<typename Replicas::device>) {
    replicas.prepare(train.batch_size());
    if constexpr (validates) replicas.prepare(validation.batch_size());
  }
  auto batches = batches_over(replicas, train, "fit: the training", options.class_weight);
  TrainingSteps steps(replicas, batches);
  const auto describe = [&] {
    return fit_signature(described(train), describe_validation(validation, options), options,
                         replicas.steps(), loop.first_pass(), kept.rate_of(replicas),
                         kept.rate.has_value());
  };
  if constexpr (validates) {
    if (!validation.size() && !options.validation_steps)
      throw UsageError("fit: the validation data never end; set .validation_steps");
    auto validation_batches = batches_over(replicas, validation, "fit: the validation");
    EvaluationSteps validation_steps(replicas, validation_batches);
    return loop.run(steps, &validation_steps, describe);
  } else {
    return loop.run(steps, nullptr, describe);
  }
}

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/fit_loop.ipp"
#endif
