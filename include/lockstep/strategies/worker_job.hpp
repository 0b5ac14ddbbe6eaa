/// \file
/// A process' place in a job of replicas on many processes, on whatever device. Invariants: the
/// rendezvous lasts as long as the sessions that share it; whatever ends an exchange between
/// processes, every survivor throws the same PeerLost.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/environment.hpp"
#include "lockstep/cluster/rendezvous/stall.hpp"
#include "lockstep/cluster/resolved_cluster.hpp"
#include "lockstep/cluster/stragglers.hpp"
#include "lockstep/collectives/sum_members.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/cores.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/phase.hpp"
#include "lockstep/strategies/job_group.hpp"
#include "lockstep/strategies/worker_place.hpp"

namespace lockstep::detail {

class JobSession;

/// What MultiWorkerMirrored is told of the job.
struct WorkerOptions {
  std::size_t virtual_shards = 0;
  bool stragglers = false;
  StallLimits stall_limits{};
  const ClusterArguments& cluster;
  const Environment& environment;
};

/// Made by joining; then `exchange_places` and `connect`, `subscribe`, and `leave` at the end.
class WorkerJob {
 public:
  /// Joins. \throws ClusterError, PeerLost.
  LOCKSTEP_COLD_DECL explicit WorkerJob(const WorkerOptions& options);
  WorkerJob(const WorkerJob&) = delete;
  WorkerJob& operator=(const WorkerJob&) = delete;
  LOCKSTEP_COLD_DECL ~WorkerJob();

  /// Learns where all processes run, and how many replicas each has. \throws UsageError, the same
  /// on all ranks, if `virtual_shards` do not fit.
  LOCKSTEP_COLD_DECL void exchange_places(const WorkerPlace& here);
  /// Connects the processes. Gloo's threads will run on `cores`.
  LOCKSTEP_COLD_DECL void connect(const Cores& cores);
  /// The chief's `mine`, since all must send the same messages. Over a network an exchange
  /// waits more than it works; on one machine it is work of its cores.
  LOCKSTEP_COLD_DECL bool overlaps(bool mine);
  /// `abort` ends the exchanges of this process, when another process is lost.
  LOCKSTEP_COLD_DECL void subscribe(std::function<void()> abort);
  /// Before the connections close: others may still read from them.
  LOCKSTEP_COLD_DECL void leave();

  /// f(); if it throws, the others are told.
  template <class F>
  auto fail_on_error(const F& f) {
    try {
      return f();
    } catch (const std::exception& e) {
      fail_and_unsubscribe(e.what());
      throw;
    }
  }
  /// f() exchanges with the other processes. \throws PeerLost for the loss that ended it.
  template <class F>
  void exchange(const F& f) {
    const WaitScope scope(*this);
    try {
      f();
    } catch (const CollectiveError& e) {
      throw_cause(e);
      throw;
    }
  }

  bool is_alone() const { return job_ == nullptr; }
  std::size_t rank() const { return rank_; }
  std::size_t virtual_shards() const { return virtual_shards_; }
  SumOrder order() const { return virtual_shards_ > 0 ? SumOrder::tree : SumOrder::ranks; }
  /// The rendezvous knows who stalls, and for how long each may; this is for what it misses.
  std::chrono::milliseconds timeout() const { return timeout_; }
  const std::vector<WorkerPlace>& places() const { return places_; }
  /// Replicas of each process; of all; and the rank of this process' first.
  const std::vector<std::size_t>& counts() const { return counts_; }
  LOCKSTEP_COLD_DECL std::size_t total() const;
  LOCKSTEP_COLD_DECL std::size_t first() const;
  /// This process among the processes, by a channel for layers and one for gradients.
  JobGroup& layers() { return *layers_; }
  JobGroup& gradients() { return *gradients_; }

  LOCKSTEP_COLD_DECL void agree(std::string_view part, const Signature& fields);
  LOCKSTEP_DECL void note(std::uint64_t step, Phase phase);
  LOCKSTEP_COLD_DECL void end_epoch(int epoch);
  LOCKSTEP_COLD_DECL void fail(const std::string& what);

 private:
  /// While it lives, a loss ends by itself what the process waits for.
  class WaitScope {
   public:
    explicit WaitScope(WorkerJob& job) : job_(job) { job_.waits_ = true; }
    WaitScope(const WaitScope&) = delete;
    WaitScope& operator=(const WaitScope&) = delete;
    ~WaitScope() { job_.waits_ = false; }

   private:
    WorkerJob& job_;
  };

  LOCKSTEP_COLD_DECL void fail_and_unsubscribe(const std::string& what);
  /// Its control thread calls nothing of this object any more.
  LOCKSTEP_COLD_DECL void unsubscribe();
  /// How long a process that has joined may take to say where it runs.
  LOCKSTEP_COLD_DECL std::chrono::milliseconds start_timeout() const;
  LOCKSTEP_COLD_DECL std::string key(std::string_view what) const;
  LOCKSTEP_COLD_DECL std::vector<WorkerPlace> places_by_rank(const WorkerPlace& here);
  LOCKSTEP_COLD_DECL void check_shards() const;
  /// The chief tells who is who.
  LOCKSTEP_COLD_DECL void log_members() const;
  LOCKSTEP_COLD_DECL std::shared_ptr<GlooMesh> form_mesh(const Cores& cores);
  /// An exchange failed: the cause is whom the chief names. Who was told of an abort may be
  /// told the cause before it needs to ask.
  LOCKSTEP_COLD_DECL void throw_cause(const CollectiveError& e);

  std::size_t virtual_shards_;
  bool stragglers_;
  std::chrono::milliseconds timeout_;
  int exceptions_ = std::uncaught_exceptions();
  std::atomic<bool> waits_{false};
  PhaseClock clock_{};
  ResolvedCluster where_;
  std::unique_ptr<JobSession> session_;  // none: this process is alone
  Rendezvous* job_ = nullptr;            // the session's; null: none
  std::size_t rank_ = 0;
  std::vector<WorkerPlace> places_;
  std::vector<std::size_t> counts_;
  std::optional<std::uint64_t> first_step_;
  bool peers_know_ = false;  // the error that this process ends by is that of all
  std::shared_ptr<GlooMesh> mesh_;
  std::optional<JobGroup> layers_, gradients_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/strategies/worker_job.ipp"
#endif
