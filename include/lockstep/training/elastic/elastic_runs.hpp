/// \file
/// The collective calls of a model in an elastic job: `fit`, `evaluate`, `predict` and a few others.
/// Invariants: a call ends in all processes or in none; a process that loses a peer within a call
/// goes on within the same call; the state that a generation continues with is that of the latest
/// boundary that a process has passed, from before the hooks that follow the boundary.
///
///     call 1 ── exchanges ── barrier ── call 2 ── exchanges ── barrier ── ...
///                  └ PeerLost: next generation, gather standings, go back to the boundary,
///                              broadcast the donor's state if a process has not passed it
///
/// A process that joins gets the state when its model is made. It returns at once from the calls
/// that the job has ended, and takes part in the current one from the position of the others.
///
/// An interface that <lockstep/elastic.hpp> implements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/training/checkpoint/job_state.hpp"
#include "lockstep/training/elastic/model_boundary.hpp"
#include "lockstep/training/elastic/run_standing.hpp"
#include "lockstep/training/step/any_replicas.hpp"

namespace lockstep::detail {

struct BetweenRuns;
class FitLoop;

/// The last owner of some range of the weights is lost, which ends the job in all processes.
class OwnersLost : public PeerLost {
 public:
  explicit OwnersLost(const PeerLost& loss) : PeerLost(loss) {}
};

/// The state that a generation continues with.
struct Recovered {
  RunStanding at;             ///< of the donor
  JobState state{};           ///< the donor's; the replicas have its weights already
  bool has_returned = false;  ///< all processes have ended this call; the state is of a later one
  bool is_behind = true;      ///< the donor has passed a boundary that this process has not
  bool are_complete = false;  ///< all processes have the result of this call
};

/// The calls of one model, which may move: the replicas are an argument. Implemented by
/// RecoveringRuns.
class ElasticRuns {
 public:
  ElasticRuns(const ElasticRuns&) = delete;
  ElasticRuns& operator=(const ElasticRuns&) = delete;
  virtual ~ElasticRuns() = default;

  /// Exchanges standings when the model is made. A process that joins a running job gets its state.
  virtual void join(AnyReplicas& replicas) = 0;

  /// Whether a call is in progress. A call within a call, by a callback, neither counts nor recovers:
  /// the outer one does.
  bool is_in_call() const { return is_in_call_; }
  /// Whether the current hook may make exchanges.
  bool allows_nested() const { return allows_nested_; }
  /// \throws UsageError within a hook that a process which joins calls alone.
  void check_nested_call() const {
    if (!allows_nested_) [[unlikely]]
      throw UsageError(
          "callback: in an elastic job evaluate, predict and fit are called in on_train_batch_end "
          "and on_epoch_end only; move the call there");
  }
  /// The number of the current call.
  std::uint64_t call() const { return call_; }
  /// The model at the last boundary of the current call.
  ModelBoundary& boundary() { return boundary_; }
  /// Whether the last `recover` went back to it, also if that then threw.
  bool has_rolled_back() const { return has_rolled_back_; }

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
      runs_->boundary_.clear();
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
  virtual Entry enter(AnyReplicas& replicas, BetweenRuns& kept) = 0;
  /// An exchange of all processes, as at the end of a call. \throws PeerLost.
  static void finish(AnyJob& replicas) {
    const std::byte here{1};
    replicas.gather({&here, 1});
  }

  /// After a loss, or to admit a process: joins the next generation. `mine` and `own` are this
  /// process' standing and state. Unless the call has ended in all processes, they go back to the
  /// boundary, and a process that has not passed the donor's gets its state.
  /// \throws PeerLost, or Evicted if a signal has come meanwhile.
  virtual Recovered recover(AnyReplicas& replicas, const std::string& why, RunStanding mine,
                            JobState own) = 0;

  /// The call of `loop`, which goes on after a loss. `stop`: see Scope.
  virtual void fit(FitLoop& loop, AnyReplicas& replicas, BetweenRuns& kept,
                   const std::stop_token& stop) = 0;
  /// A call that is repeated from its beginning unless all processes have its result. `undo` drops
  /// this process' result.
  virtual void repeat(AnyReplicas& replicas, BetweenRuns& kept, const std::stop_token& stop,
                      FunctionRef<void()> run, FunctionRef<void()> undo) = 0;

 protected:
  ElasticRuns() = default;

  std::uint64_t call_ = 0;
  bool is_in_call_ = false, allows_nested_ = true, has_rolled_back_ = false;
  ModelBoundary boundary_;
  std::stop_token stop_{};
};

/// Needs <lockstep/elastic.hpp>, which a program with ls::Elastic includes.
LOCKSTEP_COLD_DECL std::unique_ptr<ElasticRuns> make_elastic_runs();

/// Calls f(), a collective call of the model: in an elastic job within the rules above. `stop` ends
/// its waits for other processes. The result in a process that joins after the call is R().
template <class R>
R call_together(AnyReplicas& replicas, BetweenRuns& kept, const std::stop_token& stop,
                FunctionRef<R()> f) {
  ElasticRuns* const elastic = replicas.elastic();
  if (elastic == nullptr) return f();
  if (elastic->is_in_call()) {
    elastic->check_nested_call();
    return f();
  }
  std::optional<R> result;
  elastic->repeat(replicas, kept, stop, [&] { result.emplace(f()); }, [&] { result.reset(); });
  return result ? std::move(*result) : R();
}

}  // namespace lockstep::detail
