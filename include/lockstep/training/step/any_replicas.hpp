/// \file
/// Type-erased interface between the loops of fit, evaluate and predict and a model's replicas.
/// The loops know nothing of the network, the strategy or the optimizer, so they are compiled once
/// for all models. Calls are virtual, at most a few per step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/concepts/named_tensor.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/phase.hpp"
#include "lockstep/training/export/architecture.hpp"
#include "lockstep/training/parameters.hpp"
#include "lockstep/training/report/running_logs.hpp"
#include "lockstep/training/step/run_requests.hpp"

namespace lockstep::detail {

class ElasticRuns;
struct JobState;
struct StateLayout;
class StepTrace;
struct TraceRoundTrip;

/// Placement of a model: its strategy, and this process' part in the job. Constant during a run, except in an
/// elastic job.
struct TrainingPlace {
  std::string_view strategy;
  std::size_t replicas, virtual_shards, rank;
  bool is_chief;
  bool is_one_process;  ///< known at compile time: the strategy never has several processes
  bool is_alone;        ///< known at run time: this process holds all replicas of the job
  std::size_t workers = 1, first_replica = 0;  ///< processes; rank of this one's first replica
  std::size_t min_workers = 1;                 ///< of an elastic job
  bool is_one_machine = true;                  ///< the same
};

/// All replicas of a model, in this process and in others. Implemented by Replicas only.
class AnyReplicas {
 public:
  virtual TrainingPlace place() const = 0;
  virtual std::uint64_t seed() const = 0;
  /// Training steps over the model's life, skipped ones included.
  virtual std::uint64_t steps() const = 0;
  /// Steps without those that a loss scale skipped because gradients overflowed.
  virtual std::uint64_t updates() const = 0;
  /// The optimizer's own rate or schedule for the next step.
  virtual double learning_rate() const = 0;

  /// Requests of all processes, as of the last exchange.
  virtual RunRequests agreed_requests() const = 0;
  /// Exchanges requests between steps, without gradients. Collective.
  virtual void exchange_requests(RunRequests requests) = 0;
  /// Drops the requests that the last exchange left.
  virtual void clear_requests() = 0;
  /// Drops the sums of steps that no read_sums has read, as after an exception.
  virtual void discard_pending_steps() = 0;
  /// Waits for the devices; \throws errors that kernels reported meanwhile.
  virtual void wait_for_steps() = 0;
  /// \throws ReplicasDiverged. Collective.
  virtual void verify() = 0;
  /// Copies the weights' exponential moving averages over the weights (Keras' use_ema).
  virtual void overwrite_with_averages() = 0;
  /// Exchanges weights and averages; see TrainingControl.
  virtual void swap_averages(bool averages) = 0;
  virtual bool has_averages_in_weights() const = 0;
  /// Reports progress to the strategy, which may forward it to the other processes.
  virtual void note(Phase phase) = 0;
  virtual void end_epoch(int epoch) = 0;

  /// Empty logs with the names of the loss and the metrics.
  virtual RunningLogs begin_logs() const = 0;
  /// Adds the sums of all pending steps to `running`, and clears them.
  virtual void read_sums(RunningLogs& running) = 0;

  /// Weights and state as bytes, for callbacks that keep the best ones.
  virtual std::vector<std::byte> copy() const = 0;
  virtual void restore(std::span<const std::byte> copy) = 0;
  /// Properties that must be equal in all processes of a job, and when a job continues; see
  /// model_signature.
  virtual Signature signature() const = 0;
  virtual std::vector<ParameterInfo> parameters() const = 0;
  /// Writes the model's part of the state: buffers, steps, loss scale, seed, replicas, signature.
  /// It is the same in all processes.
  virtual void save(JobState& to) const = 0;
  /// Restores what `save` wrote, except the signature. All processes call it with the same state.
  virtual void load(const JobState& from) = 0;
  /// Type, names and sizes of the buffers, and the signature; costs no copy of the buffers.
  virtual StateLayout layout() const = 0;
  /// Replaces a buffer, in the order of the layout, by what `fill` writes.
  virtual void set_buffer(std::size_t buffer, FunctionRef<void(std::span<std::byte>)> fill) = 0;
  /// Restores what `save` wrote, except the buffers and the signature.
  virtual void load_facts(const JobState& from) = 0;
  /// Replaces `bytes` by those of the chief in all processes. Collective.
  virtual void broadcast(std::vector<std::byte>& bytes) = 0;
  /// \throws UsageError in all processes unless all pass the same fields. Collective.
  virtual void agree(std::string_view part, const Signature& fields) = 0;
  /// Records the work of this process' replicas in `trace`, with memory for `steps` steps; null ends
  /// it.
  virtual void record(std::shared_ptr<StepTrace> trace, std::uint64_t steps) = 0;
  /// The bytes of each process, in rank order. Collective.
  virtual std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes) = 0;
  /// This process' times of `count` operations that all processes make together. Collective.
  virtual std::vector<TraceRoundTrip> round_trips(std::size_t count) = 0;
  /// Notifies the other processes, unless they know, that this one ends with `error`.
  virtual void fail(const std::exception_ptr& error) = 0;
  virtual bool is_finite() const = 0;
  virtual std::string not_finite() const = 0;
  virtual std::vector<NamedTensor> tensors() const = 0;

  virtual Architecture architecture() const = 0;

  /// Null unless the job is elastic; only then are the functions below called.
  virtual ElasticRuns* elastic() { return nullptr; }
  /// See ElasticSession.
  virtual bool has_newcomers() const { return false; }
  virtual bool must_reform() const { return false; }
  virtual std::uint64_t generation() const { return 0; }
  virtual std::string describe_change() const { return {}; }
  /// Replaces `bytes` by those of the process whose first replica has the rank `root`. Collective.
  virtual void broadcast_from(std::size_t, std::vector<std::byte>&) {}
  /// Sends `size` bytes `from` the same process `to` the others; null discards them. Collective.
  virtual void broadcast_from(std::size_t, std::size_t /*size*/, const std::byte* /*from*/,
                              std::byte* /*to*/) {}
  /// Joins the next generation of the job, with new replicas, and calls `exchange`; begins again
  /// with another generation if a process is lost meanwhile. If the job cannot go on, the replicas
  /// get the state `own`, and the error is thrown.
  virtual void reform(const std::string& /*why*/, const JobState& /*own*/,
                      FunctionRef<void()> /*exchange*/) {}

 protected:
  AnyReplicas() = default;
  AnyReplicas(const AnyReplicas&) = default;
  AnyReplicas& operator=(const AnyReplicas&) = default;
  ~AnyReplicas() = default;
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

 protected:
  Steps() = default;
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;
  ~Steps() = default;
};

}  // namespace lockstep::detail
