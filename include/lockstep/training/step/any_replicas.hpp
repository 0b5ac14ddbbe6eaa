/// \file
/// All replicas of a model as the loops of fit, evaluate and predict see them, whatever its network,
/// strategy and optimizer are: those loops are compiled once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/phase.hpp"
#include "lockstep/training/report/running_logs.hpp"

namespace lockstep::detail {

/// What one process asks for and all must do after the same step: it travels with the sums.
struct RunRequests {
  bool stop_now = false;      ///< the stop token: the epoch is not finished
  bool end_training = false;  ///< a callback: this epoch is the last
  std::optional<double>
      learning_rate{};  ///< a callback: the learning rate from this step's update on
};

/// Where a model trains.
struct TrainingPlace {
  std::string_view strategy;
  std::size_t replicas, virtual_shards, rank;
  bool is_chief;
  bool is_one_process;  ///< the strategy never has several
  bool is_alone;        ///< all replicas of the job are in this process
};

/// See Replicas.
class AnyReplicas {
 public:
  virtual TrainingPlace place() const = 0;
  virtual std::uint64_t seed() const = 0;
  virtual std::uint64_t steps() const = 0;
  virtual std::uint64_t updates() const = 0;
  /// The optimizer's own, of the next step.
  virtual double learning_rate() const = 0;

  virtual RunRequests agreed_requests() const = 0;
  virtual void exchange_requests(RunRequests requests) = 0;
  virtual void clear_requests() = 0;
  virtual void discard_pending_steps() = 0;
  virtual void wait_for_steps() = 0;
  virtual void verify() = 0;
  virtual void overwrite_with_averages() = 0;
  /// To the strategy, which may tell the other processes.
  virtual void note(Phase phase) = 0;
  virtual void end_epoch(int epoch) = 0;

  /// Logs without a step.
  virtual RunningLogs begin_logs() const = 0;
  virtual void read_sums(RunningLogs& running) = 0;

  virtual std::vector<std::byte> copy() const = 0;
  virtual void restore(std::span<const std::byte> copy) = 0;
  virtual bool is_finite() const = 0;
  virtual std::string not_finite() const = 0;

 protected:
  AnyReplicas() = default;
  AnyReplicas(const AnyReplicas&) = default;
  AnyReplicas& operator=(const AnyReplicas&) = default;
  ~AnyReplicas() = default;
};

/// The batches of a run, one after the other, and the step that is made of each.
class Steps {
 public:
  virtual void begin(Pass pass, std::uint64_t skip_examples) = 0;
  /// False at the end of the pass.
  virtual bool next() = 0;
  /// A step of the batch that `next` has found. `rate` and `waits` are for training: see Replicas.
  virtual void run_step(const RunRequests& requests, double rate, bool waits) = 0;

 protected:
  Steps() = default;
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;
  ~Steps() = default;
};

}  // namespace lockstep::detail
