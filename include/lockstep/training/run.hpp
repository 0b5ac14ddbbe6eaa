/// \file
/// A call of fit, evaluate or predict: its callbacks, and what they may do to it. Invariant: no
/// callback has a control when the call is over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/core/phase.hpp"
#include "lockstep/training/callbacks/callback_list.hpp"
#include "lockstep/training/report/progress.hpp"
#include "lockstep/training/step/any_replicas.hpp"

namespace lockstep::detail {

/// What a model keeps from one call to the next, beside its replicas.
struct BetweenRuns {
  /// The learning rate that was set in the place of the optimizer's own, and, while other processes
  /// do not know it, once more.
  std::optional<double> rate{}, unsent_rate{};
  std::uint64_t passes = 0;      ///< a checkpoint must keep it: the next pass follows from it
  std::vector<double> totals{};  ///< of the last evaluation or epoch, see RunningLogs

  LOCKSTEP_COLD_DECL void set_rate(double rate);
  /// Of the next step.
  double rate_of(const AnyReplicas& replicas) const {
    return rate ? *rate : replicas.learning_rate();
  }
};

struct Run final : TrainingControl {
  /// `user` and `stop` live as long.
  LOCKSTEP_COLD_DECL Run(AnyReplicas& all, BetweenRuns& between,
                         const std::vector<std::shared_ptr<Callback>>& user, ProgressStyle progress,
                         const std::stop_token& stop);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  LOCKSTEP_COLD_DECL ~Run() override;

  RunRequests requests() const { return {token.stop_requested(), stopped}; }
  /// A rate that was set here travels with the next exchange; what was said there is that of all.
  LOCKSTEP_DECL RunRequests pop_requests();
  LOCKSTEP_DECL void adopt_agreed_rate();
  /// Whether this process ends now: with others it asks, and waits for the answer.
  bool stops_without_peers() const { return token.stop_requested() && place.is_alone; }
  /// `agreed` is read right after an exchange, before hooks, which may evaluate and so exchange
  /// again. A process that is alone decides by what it asks for after them.
  RunRequests effective(const RunRequests& agreed) const {
    return place.is_alone ? requests() : agreed;
  }

  LOCKSTEP_DECL void stop_training() override;
  LOCKSTEP_DECL bool stop_requested() const override;
  LOCKSTEP_DECL double learning_rate() const override;
  LOCKSTEP_COLD_DECL void set_learning_rate(double rate) override;
  LOCKSTEP_COLD_DECL void log(std::string_view name, double value) override;
  LOCKSTEP_COLD_DECL std::vector<std::byte> weights() const override;
  LOCKSTEP_DECL bool is_finite() const override;
  LOCKSTEP_COLD_DECL std::string not_finite() const override;
  LOCKSTEP_COLD_DECL void set_weights(std::span<const std::byte> copy) override;
  LOCKSTEP_DECL const TrainingParams& params() const override;

  /// What one callback adds, the next one finds.
  LOCKSTEP_COLD_DECL void end_epoch(int epoch, Logs& logs);

  AnyReplicas& replicas;
  BetweenRuns& kept;
  const std::stop_token& token;
  const TrainingPlace place;
  TrainingParams numbers;
  Progress reports;  // must outlive the list, which has a pointer to it
  CallbackList callbacks;
  bool stopped = false, is_at_epoch_end = false;
  Logs added;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/run.ipp"
#endif
