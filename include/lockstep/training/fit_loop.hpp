/// \file
/// `Model::fit`: epochs of executions of steps, with validations between them. Invariants: hooks
/// are called in Keras' order; all processes of a job take the same way through the loop.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "lockstep/concepts/device.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/core/phase.hpp"
#include "lockstep/training/checks/model_signature.hpp"
#include "lockstep/training/checks/run_checks.hpp"
#include "lockstep/training/evaluation.hpp"
#include "lockstep/training/fit_options.hpp"
#include "lockstep/training/history.hpp"
#include "lockstep/training/run.hpp"
#include "lockstep/training/step/batches.hpp"

namespace lockstep::detail {

/// One call of `fit`.
class FitLoop {
 public:
  /// Checks the options. `examples`: of the training data, nothing if they never end.
  LOCKSTEP_COLD_DECL FitLoop(AnyReplicas& replicas, BetweenRuns& kept,
                             std::optional<std::uint64_t> examples, std::size_t batch,
                             const FitOptions& options);

  FitLoop(const FitLoop&) = delete;
  FitLoop& operator=(const FitLoop&) = delete;
  LOCKSTEP_COLD_DECL ~FitLoop();

  std::uint64_t first_pass() const { return first_pass_; }

  /// `validation` may be null. `agree()`: the processes of the job compare what they are about to
  /// do.
  LOCKSTEP_COLD_DECL History run(Steps& train, Steps* validation, FunctionRef<void()> agree);

 private:
  /// What stands before the first epoch: the data, the other processes, the first hook.
  LOCKSTEP_COLD_DECL void begin(Steps& train, FunctionRef<void()> agree);
  LOCKSTEP_COLD_DECL void begin_epoch(Steps& train, int epoch);
  /// The steps of an epoch, until it ends or a stop is asked for; false if there was none.
  LOCKSTEP_DECL bool train_epoch(Steps& train, int epoch);

  /// Some steps without a hook between them.
  struct Execution {
    std::uint64_t before;  ///< steps of the model's life
    std::uint64_t steps = 0;
    bool has_data = true;
  };
  /// `done`: steps of this epoch so far.
  LOCKSTEP_DECL Execution execute(Steps& train, std::uint64_t done);
  /// `done`: steps of this epoch before it.
  LOCKSTEP_DECL void end_execution(const Execution& made, std::uint64_t done);
  /// The data have ended, after `done` steps of an epoch. \throws UsageError if there were none for
  /// the first epoch.
  LOCKSTEP_COLD_DECL void end_of_data(int epoch, std::uint64_t done);

  /// A value of a step alone is now the epoch's too.
  LOCKSTEP_COLD_DECL void store_epoch_logs();
  LOCKSTEP_COLD_DECL void validate(Steps& validation);
  LOCKSTEP_COLD_DECL void end_epoch(int epoch);
  void note(Phase phase) { replicas_.note(phase); }

  AnyReplicas& replicas_;
  BetweenRuns& kept_;
  const std::size_t batch_size_;
  const FitOptions& options_;
  History history_;  // must outlive run_, which has a pointer to it
  Run run_;
  RunningLogs running_;
  const std::uint64_t first_pass_;
  // Not asked for in the loop: there g++ 12 warns of an absent number at -O3.
  const std::uint64_t most_steps_;
  std::uint64_t first_update_ = 0;  // the least number of updates since the begin
  Logs logs_;                       // of the last epoch
  RunRequests requests_;
  bool ran_out_ = false, ends_ = false;
};

/// In the place of validation data; nothing that evaluates is compiled for it.
struct NoValidation {};

/// Checks the options and the data, takes the memory for batches, and trains.
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
  const auto agree = [&] {
    if constexpr (!Replicas::is_one_process)
      replicas.session().agree(
          "fit", fit_signature(described(train), describe_validation(validation, options), options,
                               replicas.steps(), loop.first_pass(), kept.rate_of(replicas),
                               kept.rate.has_value()));
  };
  if constexpr (validates) {
    if (!validation.size() && !options.validation_steps)
      throw UsageError("fit: the validation data never end; give .validation_steps");
    auto validation_batches = batches_over(replicas, validation, "fit: the validation");
    EvaluationSteps validation_steps(replicas, validation_batches);
    return loop.run(steps, &validation_steps, agree);
  } else {
    return loop.run(steps, nullptr, agree);
  }
}

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/fit_loop.ipp"
#endif
