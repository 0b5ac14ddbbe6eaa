/// \file
/// The job of a model, whatever its strategy. Invariant: all processes make the collective calls in the
/// same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/phase.hpp"

namespace lockstep::detail {

class ElasticRuns;
struct JobState;
struct TraceRoundTrip;

/// Placement of a model: its strategy, and this process' part in the job. Constant during a run, except in an
/// elastic job.
struct TrainingPlace {
  std::string_view strategy;
  std::size_t replicas;  ///< that compute
  std::size_t virtual_shards, rank;
  bool is_chief;
  bool is_one_process;  ///< known at compile time: the strategy never has several processes
  bool is_alone;        ///< known at run time: this process holds all replicas of the job
  std::size_t workers = 1, first_replica = 0;  ///< processes; rank of this one's first replica
  std::size_t min_workers = 1;                 ///< of an elastic job
  bool is_one_machine = true;                  ///< the same
  std::size_t replicas_of_each = 1;            ///< of each process of an elastic job
  /// Processes that own each range of the weights, in an elastic job. 0: all own all weights.
  std::size_t owner_copies = 0;
  bool owns = false;         ///< this process is one of the owners
  bool has_servers = false;  ///< the owners are parameter servers, which compute nothing
};

/// This process' part in the job, and the calls that its processes make together. Implemented by
/// Replicas only.
class AnyJob {
 public:
  virtual TrainingPlace place() const = 0;
  /// \throws ReplicasDiverged. Collective.
  virtual void verify() = 0;
  /// Reports progress to the strategy, which may forward it to the other processes.
  virtual void note(Phase phase) = 0;
  virtual void end_epoch(int epoch) = 0;
  /// Replaces `bytes` by those of the chief in all processes. Collective.
  virtual void broadcast(std::vector<std::byte>& bytes) = 0;
  /// \throws UsageError in all processes unless all pass the same fields. Collective.
  virtual void agree(std::string_view part, const Signature& fields) = 0;
  /// The bytes of each process, in rank order. Collective.
  virtual std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes) = 0;
  /// This process' times of `count` operations that all processes make together. Collective.
  virtual std::vector<TraceRoundTrip> round_trips(std::size_t count) = 0;
  /// Notifies the other processes, unless they know, that this one ends with `error`.
  virtual void fail(const std::exception_ptr& error) = 0;
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
  /// \throws OwnersLost: the job ends, since no process has some range of the weights and its slots.
  [[noreturn]] virtual void throw_owners_lost() const = 0;
  /// Joins the next generation of the job, with new replicas, and calls `exchange`; begins again
  /// with another generation if a process is lost meanwhile. If the job cannot go on, the replicas
  /// get the state `own`, and the error is thrown.
  virtual void reform(const std::string& /*why*/, const JobState& /*own*/,
                      FunctionRef<void()> /*exchange*/) {}

 protected:
  AnyJob() = default;
  AnyJob(const AnyJob&) = default;
  AnyJob& operator=(const AnyJob&) = default;
  ~AnyJob() = default;
};

}  // namespace lockstep::detail
