/// \file
/// Type-erased interface between the loops of fit, evaluate and predict and a model's replicas, by
/// duty: state, steps, job. The loops know nothing of the network, the strategy or the optimizer,
/// so they are compiled once for all models. Calls are virtual, at most a few per step.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/training/step/any_job.hpp"
#include "lockstep/training/step/any_model_state.hpp"
#include "lockstep/training/step/any_steps.hpp"
#include "lockstep/training/step/made_steps.hpp"

namespace lockstep::detail {

/// All replicas of a model, in this process and in others. Implemented by Replicas only.
class AnyReplicas : public AnyModelState, public AnySteps, public AnyJob {
 protected:
  AnyReplicas() = default;
  AnyReplicas(const AnyReplicas&) = default;
  AnyReplicas& operator=(const AnyReplicas&) = default;
  ~AnyReplicas() = default;
};

/// Steps that the workers of a job make each for itself. Between the beginning and the end of a phase
/// nothing is collective, and no process has the weights of all steps.
class AsynchronousPhase {
 public:
  /// Begins a phase of `steps` steps on the batches that follow the current position, or continues with
  /// those that are not `made`. Collective.
  virtual void begin_phase(std::uint64_t steps, const MadeSteps& made) = 0;
  /// Does this process' work of the phase for a step, or for a fraction of a second. `stops`: no
  /// further step is to begin; `rate` overrides the optimizer's. \returns false once the phase has
  /// ended in all processes, which hold equal weights then.
  virtual bool advance(bool stops, std::optional<double> rate) = 0;
  /// Adds the next step that was made, by any worker, to the sums that read_sums reads: the same
  /// sequence in all processes. \returns its number in the phase; nullopt if this process knows of no
  /// other.
  virtual std::optional<std::uint64_t> take_step() = 0;
  /// After the hooks of its steps.
  virtual void end_phase() = 0;
  /// The most updates that the gradients of a step of the last phase have missed.
  virtual std::uint64_t most_stale() const = 0;

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
  /// Null: each step is an exchange of all processes.
  virtual AsynchronousPhase* asynchronous() { return nullptr; }

 protected:
  Steps() = default;
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;
  ~Steps() = default;
};

}  // namespace lockstep::detail
