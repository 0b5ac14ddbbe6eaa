/// \file
/// The loop of `Model::fit`: epochs, each a sequence of executions of one or more steps, with
/// validation after an epoch. Invariants: callback hooks are called in Keras' order; all processes
/// of a job follow the same path through the loop.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/core/phase.hpp"
#include "lockstep/training/callbacks/callback_list.hpp"
#include "lockstep/training/checkpoint/fit_checkpoints.hpp"
#include "lockstep/training/checks/model_signature.hpp"
#include "lockstep/training/checks/run_checks.hpp"
#include "lockstep/training/elastic/elastic_runs.hpp"
#include "lockstep/training/evaluation.hpp"
#include "lockstep/training/fit_driver.hpp"
#include "lockstep/training/fit_options.hpp"
#include "lockstep/training/history.hpp"
#include "lockstep/training/run.hpp"
#include "lockstep/training/step/batches.hpp"
#include "lockstep/training/step/made_steps.hpp"

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
/// Replicas that make steps alone do so within an execution, which is one or more whole rounds and
/// ends with the epoch: at hooks and boundaries they hold the same weights.
///
/// Each step and each end of an epoch is a boundary: a point right after an exchange, before any
/// hook. A FitDriver can take the state at a boundary, and run the loop on from it:
///
///     step ─┬─ on_train_batch_end ── validation ── on_epoch_end ── requests ─┬─ checkpoint ── ...
///        boundary                                                         boundary
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

  // --- for a FitDriver ---

  /// Thrown between two steps, to admit processes that wait to join the job.
  struct Admission {};
  /// `driver` is notified until the end of the run.
  void set_driver(FitDriver& driver) { driver_ = &driver; }
  Run& current_run() { return run_; }
  /// Runs from the current position to the end of the training.
  LOCKSTEP_COLD_DECL void run_epochs();
  /// Ends the run after its last exchange: averages, on_train_end.
  LOCKSTEP_COLD_DECL void end_run();
  /// Whether all processes have the same state.
  bool has_begun() const { return has_begun_; }
  /// Boundaries passed: steps and ends of epochs of the run.
  std::uint64_t boundaries() const { return boundaries_; }
  /// Drops what an attempt to begin has done, also with a state that was loaded meanwhile.
  LOCKSTEP_COLD_DECL void begin_again();
  /// Adds the run's part of the state: the position, the callbacks and the best checkpoint.
  LOCKSTEP_COLD_DECL void save(JobState& to);
  /// Moves to a position of the job, after `boundaries` of them, and calls the hooks of the
  /// beginnings before it; on_train_begin only in a process that is new to the run. \returns
  /// whether it is. \throws UsageError if its fit differs from that of the job.
  LOCKSTEP_COLD_DECL bool move_to(const JobState& state, std::uint64_t boundaries);
  /// Restores the callbacks and checkpoints of the same state; hooks follow.
  LOCKSTEP_COLD_DECL void restore(const JobState& state);
  /// Reads the sums of steps within an execution, so that `save` has them.
  void read_sums() { replicas_.read_sums(running_); }
  /// Follows a change of the job's processes.
  LOCKSTEP_COLD_DECL void change_place();
  /// Calls on_workers_change.
  LOCKSTEP_COLD_DECL void report_change(bool was_chief);
  const Signature& signature() const { return signature_; }
  /// The model's state between two runs, with the part of the signature that a checkpoint has.
  LOCKSTEP_COLD_DECL JobState model_state() const;
  /// The same with this process' part of the model only.
  LOCKSTEP_COLD_DECL JobState own_state() const;

 private:
  friend class FitPhase;  // an execution whose steps are asynchronous

  /// Compares signatures and weights across processes, continues from a checkpoint, prepares the
  /// data, calls on_train_begin.
  LOCKSTEP_COLD_DECL void begin();
  /// Adds the fields that follow from the run's place and checkpoints.
  LOCKSTEP_COLD_DECL void complete_signature();
  /// Loads the newest checkpoint, if there is one, and moves to its position.
  LOCKSTEP_COLD_DECL void resume();
  /// Restores the callbacks' states, and the rate, which their hooks may have changed.
  LOCKSTEP_COLD_DECL void restore_callbacks();
  LOCKSTEP_COLD_DECL void begin_epoch(int epoch);
  /// Trains an epoch, until it ends or a stop is requested. \returns false if no step was made.
  LOCKSTEP_DECL bool train_epoch(int epoch);

  /// Steps without a hook between them (steps_per_execution).
  struct Execution {
    std::uint64_t before = 0;  ///< replicas_.steps() before the first one
    std::uint64_t steps = 0;   ///< made
    bool has_data = true;      ///< false: the data ended
    bool is_complete = false;  ///< of an asynchronous phase: it has ended, but not its execution
  };
  /// Trains the steps of one execution, or the rest of one that a loss has interrupted.
  LOCKSTEP_DECL void execute();
  /// Trains one step. A step that throws PeerLost has either been made, and counts, or has left no
  /// trace.
  LOCKSTEP_DECL void run_step(bool waits);
  /// Whole rounds, if the replicas make such.
  LOCKSTEP_DECL std::uint64_t steps_of_execution() const;
  /// Ends a round of steps that the replicas have made alone, exchanges requests, and calls the hooks
  /// of each step unless an execution has several.
  LOCKSTEP_COLD_DECL void end_round();
  bool calls_each_of_round() const { return round_ > 0 && options_.steps_per_execution == 1; }
  /// `sent`: the requests that travelled with it.
  LOCKSTEP_DECL void count_step(const RunRequests& sent);
  /// Reads the sums, verifies the replicas if due, calls on_train_batch_end if `calls_hook`, saves a
  /// checkpoint if due.
  LOCKSTEP_DECL void end_execution(int epoch, bool calls_hook);
  /// Handles the end of the data after `done` steps of an epoch. \throws UsageError if the first
  /// epoch had no data at all.
  LOCKSTEP_COLD_DECL void end_of_data(int epoch, std::uint64_t done);

  /// Copies the running values to the epoch's logs, without the values of the last step.
  LOCKSTEP_COLD_DECL void store_epoch_logs();
  /// Evaluates and adds "val_..." to the epoch's logs. \returns false if the evaluation was
  /// stopped.
  LOCKSTEP_COLD_DECL bool validate();
  /// In the chief, logs one warning per run if gradients or weights are not finite.
  LOCKSTEP_COLD_DECL void warn_if_not_finite(int epoch);
  /// Calls on_epoch_end and exchanges the requests that it made; saves a checkpoint if due.
  LOCKSTEP_COLD_DECL void end_epoch(int epoch);
  LOCKSTEP_COLD_DECL void save_after_epoch();
  /// Exchanges the requests of all processes outside of a step.
  LOCKSTEP_COLD_DECL void exchange_requests();
  /// The part of the fit's signature that decides which examples a step sees.
  LOCKSTEP_COLD_DECL void add_order_of_examples(Signature& to) const;
  LOCKSTEP_COLD_DECL RunPosition position_of(int epoch, std::uint64_t steps) const;
  LOCKSTEP_COLD_DECL void add_run(JobState& to, RunPosition at) const;
  /// Saves a checkpoint before step `steps` of an epoch, both counted from 0.
  LOCKSTEP_COLD_DECL void save_checkpoint(int epoch, std::uint64_t steps);
  void note(Phase phase) { replicas_.note(phase); }

  /// At a boundary: after an exchange, before any hook.
  void note_boundary() {
    if (driver_ != nullptr) driver_->pass_boundary();
  }
  /// Calls the hooks of the epoch and the execution in which the position is: this process may have
  /// called those of later ones. \returns whether it is new to the run.
  LOCKSTEP_COLD_DECL bool call_begin_hooks();
  /// Whether the position is within an epoch, whose beginning was before.
  bool is_within_epoch() const { return done_ > 0 || execution_.steps > 0; }

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
  const std::uint64_t round_;                     // see AnySteps::steps_of_round
  const std::optional<std::uint64_t> data_size_;  // examples of a pass; nullopt: they never end
  std::uint64_t first_update_ = 0;                // minimum of updates() since the start of the run
  Logs logs_;                                     // of the last epoch
  Execution execution_{};                         // the current one; no steps between two
  MadeSteps made_{};                              // of the current asynchronous phase
  std::uint64_t done_ = 0;                        // steps of the current epoch before it
  std::uint64_t boundaries_ = 0;                  // passed: steps and ends of epochs of the run
  int epoch_ = 0;                                 // the current one
  RunRequests requests_;                          // effective after the last execution or epoch
  Signature signature_;  // what a checkpoint's job must have in common with this one
  std::unique_ptr<FitCheckpoints> checkpoints_;  // null: the fit saves none
  std::optional<JobState> resumed_;              // until its epoch has begun
  std::uint64_t examples_ = 0;                   // of the current pass so far
  std::uint64_t epoch_steps_ = 0;                // of the last epoch
  bool ran_out_ = false;                         // the data ended before the epoch did
  bool ends_ = false;                            // no further epoch
  bool has_warned_ = false;                      // of values that are not finite
  FitDriver* driver_ = nullptr;                  // null: the loop runs once, from its beginning
  bool has_begun_ = false;                       // all processes have passed `begin`
  bool continues_ = false;                       // within an epoch that has begun, at a position
  bool is_after_epoch_ = false;                  // at the boundary of an epoch's end
  bool has_called_begin_ = false;                // on_train_begin
  RunRequests agreed_;                           // of the last step
  // Of `run`.
  Steps* train_ = nullptr;
  Steps* validation_ = nullptr;
  FunctionRef<Signature()> describe_{};
};

/// Stands for absent validation data, so that no evaluation code is compiled.
struct NoValidation {};
/// The step of the library. A step of the program is a ProgramStepOf.
struct LibraryStep {
  static constexpr bool reads_batches = false;  ///< on the host
  template <class Replicas, class Batches>
  auto steps(Replicas& replicas, Batches& batches) const {
    return TrainingSteps<Replicas, Batches>(replicas, batches);
  }
};

// In asynchronous_steps.hpp, which <lockstep/parameter_server.hpp> includes.
template <class Replicas, class Batches, class Data>
class AsynchronousSteps;
template <class Session>
void check_synchronous(const Session& session);

/// The steps of `step` on `data`.
template <class Replicas, class Batches, class Step, class Data>
auto steps_of(const Step& step, Replicas& replicas, Batches& batches,
              [[maybe_unused]] const Data& data,
              [[maybe_unused]] const ClassWeights& class_weights) {
  constexpr bool can_be_asynchronous =
      requires(typename Replicas::Session& session) { session.has_phases(); };
  if constexpr (can_be_asynchronous && std::same_as<Step, LibraryStep>) {
    return AsynchronousSteps<Replicas, Batches, Data>(replicas, batches, data, class_weights);
  } else {
    if constexpr (can_be_asynchronous) check_synchronous(replicas.session());
    return step.steps(replicas, batches);
  }
}

/// Checks options and data, allocates memory for batches, and trains.
template <class Replicas, class Train, class Validation, class Step>
History run_fit(Replicas& replicas, BetweenRuns& kept, const Train& train,
                const Validation& validation, const FitOptions& options, const Step& step) {
  constexpr bool validates = !std::same_as<Validation, NoValidation>;
  FitLoop loop(replicas, kept, train.size(), train.batch_size(), options);
  check_class_weights<typename Replicas::Network, typename Replicas::Loss>(options.class_weight);
  if constexpr (!HostDevice<typename Replicas::device>) {
    replicas.prepare(train.batch_size());
    if constexpr (validates) replicas.prepare(validation.batch_size());
  }
  auto batches = batches_over<!Step::reads_batches>(replicas, train, "fit: the training",
                                                    options.class_weight);
  auto steps = steps_of(step, replicas, batches, train, options.class_weight);
  const auto describe = [&] {
    using T = typename Replicas::T;
    std::optional<DescribedData> validated;
    if constexpr (validates) validated = described<T>(validation, options.validation_steps);
    return fit_signature(described<T>(train, options.steps_per_epoch), validated, options,
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
