/// \file
/// The fit of an elastic job: a driver around the loop. Invariant: after a loss all processes load the
/// whole state of the latest boundary that one of them has passed, weights included, from before its
/// hooks, and run on; hooks that follow the boundary may run again, from the same state.
///
///     run_epochs ── PeerLost, Admission ── recover ── go_to(state of the boundary) ── run_epochs
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "lockstep/core/config.hpp"
#include "lockstep/training/checkpoint/job_state.hpp"
#include "lockstep/training/elastic/elastic_runs.hpp"
#include "lockstep/training/fit_driver.hpp"

namespace lockstep::detail {

class ElasticFit final : FitDriver {
 public:
  /// All must outlive the object.
  ElasticFit(ElasticRuns& runs, FitLoop& loop, AnyReplicas& replicas, BetweenRuns& kept)
      : runs_(runs), loop_(loop), replicas_(replicas), kept_(kept) {}

  /// Runs the loop to its end, in all processes. `stop` ends the wait for other processes.
  LOCKSTEP_COLD_DECL void run(const std::stop_token& stop);

 private:
  /// The run at the last boundary, without the model's buffers, which ModelBoundary has.
  struct Boundary {
    std::uint64_t number = 0;
    JobState state{};
    std::optional<double> unsent_rate{};
    bool stopped = false;
  };

  LOCKSTEP_DECL void pass_boundary() override;
  void begin_step() override { runs_.boundary().pause(); }
  LOCKSTEP_COLD_DECL RunStanding standing() const;
  /// The model's current state, with the rest as at the last boundary.
  LOCKSTEP_COLD_DECL JobState state();
  LOCKSTEP_COLD_DECL void go_to(Recovered at);
  /// Handles `error`, which ended `recover`: the result may be complete.
  LOCKSTEP_COLD_DECL void end_with(const Error& error);

  ElasticRuns& runs_;
  FitLoop& loop_;
  AnyReplicas& replicas_;
  BetweenRuns& kept_;
  bool is_complete_ = false;  // this process waits for the others at the end of the call
  Boundary boundary_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/elastic/elastic_fit.ipp"
#endif
