/// \file
/// The collective calls of a model in an elastic job: `fit`, `evaluate`, `predict` and a few others.
/// Invariants: a call ends in all processes or in none; a process that loses a peer within a call
/// goes on within the same call; the state that a generation continues with is one that a process
/// had between two steps.
///
///     call 1 ── exchanges ── barrier ── call 2 ── exchanges ── barrier ── ...
///                  └ PeerLost: next generation, gather standings, broadcast the donor's state
///
/// A process that joins gets the state when its model is made. It returns at once from the calls
/// that the job has ended, and takes part in the current one from the position of the others.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/training/checkpoint/job_state.hpp"
#include "lockstep/training/elastic/run_standing.hpp"
#include "lockstep/training/step/any_replicas.hpp"

namespace lockstep::detail {

struct BetweenRuns;

/// The state that a generation continues with.
struct Recovered {
  RunStanding at;             ///< of the donor
  JobState state{};           ///< the donor's; the replicas have its weights already
  bool has_returned = false;  ///< all processes have ended this call; the state is of a later one
  bool is_behind = true;      ///< the donor has made steps that this process has not
  bool are_complete = false;  ///< all processes have the result of this call
  FitPhase phase = FitPhase::executing;  ///< of this process
};

/// The calls of one model, which may move: the replicas are an argument.
class ElasticRuns {
 public:
  /// Exchanges standings when the model is made. A process that joins a running job gets its state.
  LOCKSTEP_COLD_DECL void join(AnyReplicas& replicas);

  /// Whether a call is in progress. A call within a call, by a callback, neither counts nor recovers:
  /// the outer one does.
  bool is_in_call() const { return is_in_call_; }
  /// Calls within calls so far.
  std::uint64_t nested_calls() const { return nested_; }
  /// \throws UsageError within a hook that a process which joins calls alone.
  LOCKSTEP_COLD_DECL void note_nested_call();
  /// The number of the current call.
  std::uint64_t call() const { return call_; }

  /// A call, for its lifetime. `stop` ends its wait for other processes in `recover`.
  class Scope {
   public:
    Scope(ElasticRuns& runs, const std::stop_token& stop) : runs_(&runs) {
      runs.is_in_call_ = true;
      runs.stop_ = stop;
      ++runs.call_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() {
      runs_->is_in_call_ = false;
      runs_->stop_ = {};
    }

   private:
    ElasticRuns* runs_;
  };

  /// That of the current call.
  const std::stop_token& stop() const { return stop_; }

  /// Whether hooks may make calls, for its lifetime.
  class Nesting {
   public:
    /// `runs` may be null.
    Nesting(ElasticRuns* runs, bool is_allowed)
        : runs_(runs), before_(runs && std::exchange(runs->allows_nested_, is_allowed)) {}
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    ~Nesting() {
      if (runs_) runs_->allows_nested_ = before_;
    }

   private:
    ElasticRuns* runs_;
    bool before_;
  };

  /// Begins the current call. `skip`: the job has ended it already. `at`: where it continues, if this
  /// process did not take part so far; the model has the state.
  struct Entry {
    bool skip = false;
    std::optional<Recovered> at{};
  };
  LOCKSTEP_COLD_DECL Entry enter(AnyReplicas& replicas, BetweenRuns& kept);
  /// Waits until all processes have ended the current call. \throws PeerLost.
  LOCKSTEP_COLD_DECL static void finish(AnyReplicas& replicas);

  /// After a loss, or to admit a process: joins the next generation, and loads the donor's weights,
  /// or `own` if the donor is in a later call. `mine` and `own` are this process' standing and state.
  /// \throws PeerLost, or Evicted if a signal has come meanwhile.
  LOCKSTEP_COLD_DECL Recovered recover(AnyReplicas& replicas, const std::string& why,
                                       RunStanding mine, JobState own);

  /// A call that is repeated from its beginning unless all processes have its result. `undo` drops
  /// this process' result.
  LOCKSTEP_COLD_DECL void repeat(AnyReplicas& replicas, BetweenRuns& kept,
                                 const std::stop_token& stop, FunctionRef<void()> run,
                                 FunctionRef<void()> undo);

 private:
  /// The state of a call that this process has not begun yet.
  struct Pending {
    RunStanding at;
    JobState state;
  };
  LOCKSTEP_COLD_DECL void set_pending(RunStanding at, JobState state);
  /// Gathers the standings and broadcasts the donor's state. \returns the standings; `state` gets
  /// the state unless no process has one.
  LOCKSTEP_COLD_DECL static std::size_t exchange(AnyReplicas& replicas, RunStanding mine,
                                                 const JobState& own, std::vector<RunStanding>& all,
                                                 std::optional<JobState>& state);

  std::uint64_t call_ = 0, nested_ = 0;
  bool is_in_call_ = false, allows_nested_ = true;
  std::optional<Pending> pending_;
  std::stop_token stop_{};
};

/// Calls f(), a collective call of the model: in an elastic job within the rules above. `stop` ends
/// its waits for other processes; `otherwise()` is the result in a process that joins after the call.
template <class F, class Otherwise>
std::invoke_result_t<F> call_together(AnyReplicas& replicas, BetweenRuns& kept,
                                      const std::stop_token& stop, const F& f,
                                      const Otherwise& otherwise) {
  ElasticRuns* const elastic = replicas.elastic();
  if (elastic == nullptr) return f();
  if (elastic->is_in_call()) {
    elastic->note_nested_call();
    return f();
  }
  std::optional<std::invoke_result_t<F>> result;
  elastic->repeat(replicas, kept, stop, [&] { result.emplace(f()); }, [&] { result.reset(); });
  return result ? std::move(*result) : otherwise();
}

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/elastic/elastic_runs.ipp"
#endif
