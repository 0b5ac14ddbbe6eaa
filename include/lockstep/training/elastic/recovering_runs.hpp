/// \file
/// The calls of a model that go on after a loss; see elastic_runs.hpp. Invariant: all processes of a
/// generation continue with the state of the same donor.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/training/elastic/elastic_runs.hpp"

namespace lockstep::detail {

class RecoveringRuns final : public ElasticRuns {
 public:
  LOCKSTEP_COLD_DECL void join(AnyReplicas& replicas) override;
  LOCKSTEP_COLD_DECL Entry enter(AnyReplicas& replicas, BetweenRuns& kept) override;
  LOCKSTEP_COLD_DECL Recovered recover(AnyReplicas& replicas, const std::string& why,
                                       RunStanding mine, JobState own) override;
  LOCKSTEP_COLD_DECL void fit(FitLoop& loop, AnyReplicas& replicas, BetweenRuns& kept,
                              const std::stop_token& stop) override;
  LOCKSTEP_COLD_DECL void repeat(AnyReplicas& replicas, BetweenRuns& kept,
                                 const std::stop_token& stop, FunctionRef<void()> run,
                                 FunctionRef<void()> undo) override;

 private:
  /// The state of a call that this process has not begun yet.
  struct Pending {
    RunStanding at;
    JobState state;
  };
  LOCKSTEP_COLD_DECL void set_pending(RunStanding at, JobState state);
  /// Gathers the standings, rolls `own` back if the call goes on, and sends the donor's state if a
  /// process lacks its boundary: buffer by buffer into the replicas, or into `state` if this process
  /// continues with another call. \returns the donor; `state` is empty if nothing was received.
  LOCKSTEP_COLD_DECL std::size_t exchange(AnyReplicas& replicas, RunStanding& mine, JobState& own,
                                          std::vector<RunStanding>& all,
                                          std::optional<JobState>& state);
  /// The buffers of a model whose slots are divided: each element comes from a process that has it as
  /// at the donor's boundary. They end in `own` or, in a process that has not passed it, in `state`.
  /// `before`: what `state` was after the last exchange of this recovery, which a loss has ended.
  LOCKSTEP_COLD_DECL void exchange_owned(AnyReplicas& replicas, const RunStanding& mine,
                                         JobState& own, const std::vector<RunStanding>& all,
                                         std::size_t donor, std::optional<JobState>& state,
                                         std::optional<JobState> before);

  std::optional<Pending> pending_;
  std::optional<JobState> joining_;         // received by `join`, until all processes have theirs
  std::optional<RunStanding> received_at_;  // the standing of a complete `state`
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/elastic/recovering_runs.ipp"
#endif
