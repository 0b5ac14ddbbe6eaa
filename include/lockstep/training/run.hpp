/// \file
/// A call of fit, evaluate or predict: its callbacks, and the control that they have over it.
/// Invariant: no callback holds a pointer to the control after the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/core/phase.hpp"
#include "lockstep/training/callbacks/callback_list.hpp"
#include "lockstep/training/elastic/elastic_runs.hpp"
#include "lockstep/training/report/progress.hpp"
#include "lockstep/training/step/any_replicas.hpp"

namespace lockstep::detail {

/// State that a model keeps between runs, in addition to its replicas.
struct BetweenRuns {
  std::optional<double> rate{};         ///< overrides the optimizer's learning rate
  std::optional<double> unsent_rate{};  ///< the same, until the next exchange has sent it
  std::uint64_t passes = 0;             ///< number of the next pass; part of a checkpoint
  std::uint64_t examples = 0;           ///< read of that pass by the program's own loop
  /// Size and batch of the data that it reads; unknown after a checkpoint.
  std::optional<std::pair<std::optional<std::uint64_t>, std::size_t>> read_from{};
  bool is_in_loop = false;       ///< such a loop runs; not part of a checkpoint
  std::vector<double> totals{};  ///< of the last evaluation or epoch; see RunningLogs::totals

  LOCKSTEP_COLD_DECL void set_rate(double rate);
  /// The same state as part of a checkpoint.
  LOCKSTEP_COLD_DECL void save(JobState& to) const;
  /// The state of the model between two calls.
  LOCKSTEP_COLD_DECL JobState with(AnyModelState& replicas) const;
  /// The same with this process' part of the model only; see AnyModelState::save_own.
  LOCKSTEP_COLD_DECL JobState with_own(AnyModelState& replicas) const;
  LOCKSTEP_COLD_DECL void restore(const JobState& from);
  /// Learning rate of the next step.
  double rate_of(const AnyModelState& replicas) const {
    return rate ? *rate : replicas.learning_rate();
  }
};

/// One call of fit, evaluate or predict, and the control that its callbacks get.
///
/// How a stop travels, with several processes:
///
///     stop token, stop_training() -> requests() -> exchange -> agreed_requests() -> effective()
///     set_learning_rate()         -> pop_requests() -> exchange -> adopt_agreed_rate()
///
/// A process without peers skips the exchange and acts on its own requests.
struct Run final : TrainingControl {
  /// `user` and `stop` must outlive the run.
  LOCKSTEP_COLD_DECL Run(AnyReplicas& all, BetweenRuns& between,
                         const std::vector<std::shared_ptr<Callback>>& user, ProgressStyle progress,
                         const std::stop_token& stop);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  LOCKSTEP_COLD_DECL ~Run() override;

  /// This process' requests, without a learning rate.
  LOCKSTEP_DECL RunRequests requests() const;
  /// This process' requests for the next exchange; a new learning rate is sent once.
  LOCKSTEP_DECL RunRequests pop_requests();
  /// Sets the rate in `agreed`, if there is one, so that all processes use the same.
  LOCKSTEP_DECL void adopt_agreed_rate(const RunRequests& agreed);
  /// Whether to stop at once. Only a process without peers may: others must agree first.
  bool stops_without_peers() const { return token.stop_requested() && place.is_alone; }
  /// The requests to act on after hooks have run. `agreed` must be read right after the exchange,
  /// before the hooks, since a hook may evaluate and thereby exchange again. A process without
  /// peers acts on its requests after the hooks. If a signal stopped the job, passes it to this
  /// process' SignalStop, so that all report the same.
  LOCKSTEP_DECL RunRequests effective(const RunRequests& agreed) const;
  /// The requests of all processes, as of the last exchange; `mine` are those that this one sent.
  /// If a signal other than SIGINT asks some workers of an elastic job to end, and enough are left
  /// without them, also to agree on the next generation, these are evicted, and nobody else stops.
  LOCKSTEP_DECL RunRequests agreed_requests(const RunRequests& mine);
  /// Called after the hooks that follow an exchange. \throws Evicted if this process is.
  LOCKSTEP_DECL void leave_if_evicted() const;
  /// In an elastic job whose members have changed: updates the place.
  LOCKSTEP_COLD_DECL void change_place();

  LOCKSTEP_DECL void stop_training() override;
  LOCKSTEP_DECL bool stop_requested() const override;
  std::uint64_t steps() const override { return replicas.steps(); }
  LOCKSTEP_DECL double learning_rate() const override;
  LOCKSTEP_COLD_DECL void set_learning_rate(double rate) override;
  LOCKSTEP_COLD_DECL void log(std::string_view name, double value) override;
  LOCKSTEP_COLD_DECL std::vector<std::byte> weights() const override;
  LOCKSTEP_DECL bool is_finite() const override;
  LOCKSTEP_COLD_DECL std::string not_finite() const override;
  LOCKSTEP_COLD_DECL std::vector<NamedTensor> tensors() const override;
  LOCKSTEP_COLD_DECL void set_weights(std::span<const std::byte> copy) override;
  LOCKSTEP_COLD_DECL void save_weights(const std::string& path) override;
  LOCKSTEP_COLD_DECL void write_checkpoint(const std::string& directory, std::size_t keep) override;
  LOCKSTEP_COLD_DECL void set_trainable(const std::vector<std::string>& layers, bool on) override;
  LOCKSTEP_COLD_DECL void swap_averages(bool averages) override;
  LOCKSTEP_COLD_DECL void check_membership() override;
  LOCKSTEP_DECL const TrainingParams& params() const override;
  LOCKSTEP_COLD_DECL bool may_log(std::string_view name) const override;
  LOCKSTEP_COLD_DECL Architecture architecture() const override;
  LOCKSTEP_COLD_DECL void start_trace(std::uint64_t steps) override;
  LOCKSTEP_COLD_DECL std::string end_trace() override;
  /// \throws UsageError between asynchronous steps.
  LOCKSTEP_COLD_DECL void check_whole(const char* call) const;

  /// While it lives, hooks may make exchanges: in an elastic job all processes call them.
  class TogetherHooks : public ElasticRuns::Nesting {
   public:
    explicit TogetherHooks(Run& run) : Nesting(run.replicas.elastic(), true) {}
  };

  /// Calls on_epoch_end of all callbacks. Values that a callback logs are visible to later ones.
  LOCKSTEP_COLD_DECL void end_epoch(int epoch, Logs& logs);

  AnyReplicas& replicas;
  BetweenRuns& kept;
  const std::stop_token& token;
  const int signal_before;  ///< what the process' SignalStop reported when the run began
  TrainingPlace place;
  TrainingParams numbers;
  Progress reports;  // of the chief; must outlive callbacks, which holds a pointer to it
  CallbackList callbacks;
  bool stopped = false;                // a callback has called stop_training
  bool is_at_epoch_end = false;        // log() is allowed
  int evicted_by = 0;                  // the signal; leaves an elastic job after this step
  bool is_in_phase = false;            // of asynchronous steps
  bool is_within_round = false;        // a hook of a step before the last one
  bool admits = false;                 // requests report a process that waits to join
  Logs added;                          // by log(), since the last on_epoch_end hook
  std::shared_ptr<StepTrace> trace{};  // while one is active
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/run.ipp"
#endif
