/// \file
/// An execution of fit whose steps are asynchronous. Invariant: between the beginning and the end of a
/// phase nothing is collective, and no process has the weights of all steps.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/core/config.hpp"
#include "lockstep/training/step/any_replicas.hpp"
#include "lockstep/training/step/made_steps.hpp"

namespace lockstep::detail {

/// The loop's side of a phase, which lasts to the end of the epoch or to the next checkpoint, or has the
/// steps of an execution if that has several. Otherwise hooks are called for each step, as this process
/// hears of it.
class FitPhase : public AsynchronousPhase {
 public:
  LOCKSTEP_COLD_DECL void run(FitLoop& loop) final;

 protected:
  FitPhase() = default;
  FitPhase(const FitPhase&) = delete;
  FitPhase& operator=(const FitPhase&) = delete;
  ~FitPhase() = default;

 private:
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

  /// The steps that a phase can still make.
  LOCKSTEP_COLD_DECL static std::uint64_t steps_left(const FitLoop& loop);
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/asynchronous/fit_phase.ipp"
#endif
