/// \file
/// Type-erased interface between the loops of fit, evaluate and predict and a model's replicas, by
/// duty: state, steps, job. The loops know nothing of the network, the strategy or the optimizer,
/// so they are compiled once for all models. Calls are virtual, at most a few per step.
#pragma once

#include <cstdint>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/training/step/any_job.hpp"
#include "lockstep/training/step/any_model_state.hpp"
#include "lockstep/training/step/any_steps.hpp"

namespace lockstep::detail {

/// All replicas of a model, in this process and in others. Implemented by Replicas only.
class AnyReplicas : public AnyModelState, public AnySteps, public AnyJob {
 protected:
  AnyReplicas() = default;
  AnyReplicas(const AnyReplicas&) = default;
  AnyReplicas& operator=(const AnyReplicas&) = default;
  ~AnyReplicas() = default;
};

class FitLoop;

/// Steps, or slices of steps, that the workers of a job make each for itself; see FitPhase.
class AsynchronousPhase {
 public:
  /// Trains the steps of an execution of `loop`, or the rest of one that a loss has interrupted.
  virtual void run(FitLoop& loop) = 0;
  /// Adds the counts of the phases since the last call to the logs of an epoch.
  virtual void add_counts(Logs& epoch) = 0;

 protected:
  ~AsynchronousPhase() = default;
};

/// Iterates over the batches of a run and executes one step for each. The derived classes train,
/// evaluate and predict; see batches.hpp.
class Steps {
 public:
  virtual void begin(Pass pass, std::uint64_t skip_examples) = 0;
  /// Loads the next batch. \returns false at the end of the pass.
  virtual bool next() = 0;
  /// Executes a step on the batch that `next` loaded. Only training uses `rate` and `waits`; see
  /// Replicas::train.
  virtual void run_step(const RunRequests& requests, double rate, bool waits) = 0;
  /// Whether a step is the program's: one that a loss interrupts is undone and made again.
  virtual bool is_of_program() const { return false; }
  /// Null: each step is an exchange of all processes, without phases.
  virtual AsynchronousPhase* asynchronous() { return nullptr; }

 protected:
  Steps() = default;
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;
  ~Steps() = default;
};

}  // namespace lockstep::detail
