/// \file
/// A process' membership in a job of several processes, independent of the device. Invariants: the
/// rendezvous lives as long as the sessions that share it; whatever ends an exchange between
/// processes, every survivor throws the same PeerLost.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/description/environment.hpp"
#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/network/secret.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/stall.hpp"
#include "lockstep/cluster/rendezvous/stragglers.hpp"
#include "lockstep/collectives/algorithms/sum_members.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/exchange_progress.hpp"
#include "lockstep/core/phase.hpp"
#include "lockstep/strategies/job/data_plane.hpp"
#include "lockstep/strategies/job/job_group.hpp"
#include "lockstep/strategies/job/worker_place.hpp"

namespace lockstep::detail {

class JobSession;

/// Stands for two updates for each worker, whose number may change.
inline constexpr std::uint64_t default_staleness = ~std::uint64_t{0};

/// The options of a strategy that concern the job.
struct WorkerOptions {
  std::size_t virtual_shards = 0;
  bool stragglers = false;
  StallLimits stall_limits{};
  const ClusterArguments& cluster;
  const Environment& environment;
  /// The members of an elastic job's generation, or this process alone; null: those described.
  const ResolvedCluster* generation = nullptr;
  /// Registers, in an elastic job, what is called when a peer ends the generation.
  std::function<void(std::function<void()>)> on_reform{};
  const Secret* secret = nullptr;  ///< of the job; null: read it from the environment
  bool logs_members = true;
  std::size_t copies = 1;  ///< servers that own each range of the weights
  /// Updates that asynchronous steps may miss; nullopt: steps are synchronous.
  std::optional<std::uint64_t> staleness{};
  std::size_t backup_workers = 0;
};

/// The settings that the processes of a job must have in common.
LOCKSTEP_COLD_DECL std::vector<SignatureField> settings_fields(
    const ResolvedCluster& where, std::size_t virtual_shards, bool stragglers,
    std::size_t copies = 1, std::optional<std::uint64_t> staleness = {},
    std::size_t backup_workers = 0);

/// \throws ClusterError unless the description lists parameter servers.
LOCKSTEP_COLD_DECL void check_has_servers(const ResolvedCluster& where);

/// Call the members in this order:
///
///     constructor      join the job                               rendezvous
///     exchange_places  where each process runs, its replicas      key-value store
///     connect          two groups for data                        Tcp, Mpi, StorePlane
///     subscribe        abort the groups when a process is lost
///     agree, exchange, note, end_epoch ...                        training
///     leave            wait until no peer needs the connections
class WorkerJob {
 public:
  /// Joins the job. \throws ClusterError, PeerLost.
  LOCKSTEP_COLD_DECL explicit WorkerJob(const WorkerOptions& options);
  WorkerJob(const WorkerJob&) = delete;
  WorkerJob& operator=(const WorkerJob&) = delete;
  LOCKSTEP_COLD_DECL ~WorkerJob();

  /// Collects where all processes run and how many replicas each has. \throws UsageError, the same
  /// on all ranks, if `virtual_shards` does not fit.
  LOCKSTEP_COLD_DECL void exchange_places(const WorkerPlace& here);
  /// Polls before a wait sleeps, in the groups of layers and of gradients.
  struct Spins {
    int layers = 0, gradients = 0;
  };
  /// Connects the processes by a data plane's `connect`.
  LOCKSTEP_COLD_DECL void connect(JobGroups (*connect)(const JobLinks&), const Spins& spins);
  /// Connects each parameter server with the processes that exchange with it alone, and the first
  /// server with all, by a data plane's `connect_pairs`.
  LOCKSTEP_COLD_DECL void connect_pairs(
      std::vector<ProcessGroup> (*connect)(const JobLinks&, const std::vector<std::size_t>&));
  /// Whether exchanges overlap with backward: the chief's `mine`, since all processes must send the
  /// same messages. Over a network an exchange mostly waits, on one machine it mostly computes.
  LOCKSTEP_COLD_DECL bool overlaps(bool mine);
  /// Registers `abort`, which is called when another process is lost and ends the exchanges of this
  /// process.
  LOCKSTEP_COLD_DECL void subscribe(std::function<void()> abort);
  /// Call it before the connections close, because peers may still read from them.
  LOCKSTEP_COLD_DECL void leave();
  /// The same without waiting for the peers, before an elastic job forms its next generation.
  LOCKSTEP_COLD_DECL void leave_at_once();

  /// Runs f(); if it throws, reports the failure to the other processes.
  template <class F>
  auto fail_on_error(const F& f) {
    try {
      return f();
    } catch (const std::exception& e) {
      fail_and_unsubscribe(e.what());
      throw;
    }
  }
  /// Runs f(), which exchanges data with the other processes. \throws PeerLost if a loss ended it.
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
  /// The timeout of data exchanges. The rendezvous detects stalls earlier, by the stall limits;
  /// this one is for what it misses.
  std::chrono::milliseconds timeout() const { return timeout_; }
  const std::vector<WorkerPlace>& places() const { return places_; }
  /// The ranks that compute and those that own weights, if the job has parameter servers; otherwise
  /// all do both.
  LOCKSTEP_COLD_DECL ReplicaRoles roles() const;
  /// Those that share cores with this process at the same time: parameter servers compute while
  /// workers wait, and have no core of their own.
  LOCKSTEP_COLD_DECL CoreSharers core_sharers() const;
  /// The replicas of each process; `total` of all; `first` is the rank of this process' first one.
  const std::vector<std::size_t>& counts() const { return counts_; }
  LOCKSTEP_COLD_DECL std::size_t total() const;
  LOCKSTEP_COLD_DECL std::size_t first() const;
  /// The groups of processes, one channel for layers and one for gradients.
  JobGroup& layers() { return *layers_; }
  JobGroup& gradients() { return *gradients_; }
  /// Updates that asynchronous steps may miss; nullopt: steps are synchronous.
  const std::optional<std::uint64_t>& staleness() const { return staleness_; }
  /// Workers that a synchronous step need not wait for.
  std::size_t backup_workers() const { return backup_workers_; }
  /// Whether workers exchange with servers in pairs, each at its own speed.
  bool has_phases() const { return staleness_ || backup_workers_ > 0; }
  /// The groups of this process with one other each, by the other's rank, if it has such.
  std::map<std::size_t, ProcessGroup>& pairs() { return pairs_; }

  /// \throws UsageError on all ranks if `fields` differ between them.
  LOCKSTEP_COLD_DECL void agree(std::string_view part, const Signature& fields);
  /// Reports progress to the stall detection and to the straggler table.
  LOCKSTEP_DECL void note(std::uint64_t step, Phase phase);
  /// Whether a step has ended since the processes joined, apart from one that another process sent.
  bool has_trained() const { return first_step_ && last_step_ > *first_step_ + 1; }
  /// Gathers the time per phase of all ranks; the chief logs the table. Off without `stragglers`.
  LOCKSTEP_COLD_DECL void end_epoch(int epoch);
  /// Reports that this process fails with the error `what`, unless its peers know.
  LOCKSTEP_COLD_DECL void fail(const std::string& what);
  /// Whether all processes throw the error that this one has thrown last.
  bool peers_know() const { return peers_know_; }

 private:
  /// For its lifetime the process waits for its peers, so that a loss makes the wait throw, and the
  /// loss need not be logged.
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
  /// When it returns, the control thread no longer calls this object.
  LOCKSTEP_COLD_DECL void unsubscribe();
  /// Makes the member of an elastic job end this object's waits when a peer ends the generation.
  LOCKSTEP_COLD_DECL void watch_generation();
  /// The timeout for a process that has joined to publish its place.
  LOCKSTEP_COLD_DECL std::chrono::milliseconds start_timeout() const;
  LOCKSTEP_COLD_DECL std::string key(std::string_view what) const;
  LOCKSTEP_COLD_DECL JobLinks links(const Spins& spins);
  LOCKSTEP_COLD_DECL std::vector<WorkerPlace> places_by_rank(const WorkerPlace& here);
  LOCKSTEP_COLD_DECL bool has_servers() const;
  LOCKSTEP_COLD_DECL void check_copies() const;
  LOCKSTEP_COLD_DECL void check_backups() const;
  LOCKSTEP_COLD_DECL void check_shards() const;
  /// The chief logs the members of the job.
  LOCKSTEP_COLD_DECL void log_members() const;
  /// Throws the cause of a failed exchange, as decided by the chief. After an abort, waits for the
  /// chief's verdict first, which may already be on its way.
  LOCKSTEP_COLD_DECL void throw_cause(const CollectiveError& e);

  std::size_t virtual_shards_, copies_;
  bool stragglers_, is_elastic_, logs_members_, has_left_ = false;
  std::optional<std::uint64_t> staleness_;
  std::size_t backup_workers_;
  std::function<void(std::function<void()>)> on_reform_;
  std::chrono::milliseconds timeout_;
  int exceptions_ = std::uncaught_exceptions();
  std::atomic<bool> waits_{false};
  PhaseClock clock_{};
  ResolvedCluster where_;
  std::unique_ptr<JobSession> session_;  // null: this process is alone
  Rendezvous* job_ = nullptr;            // the session's, or null
  std::size_t rank_ = 0;
  std::vector<WorkerPlace> places_;
  std::vector<std::size_t> counts_;
  std::optional<std::uint64_t> first_step_;
  std::uint64_t last_step_ = 0;
  bool peers_know_ = false;  // all processes throw this error, so it need not be reported
  std::optional<JobGroup> layers_, gradients_;
  std::map<std::size_t, ProcessGroup> pairs_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/strategies/job/worker_job.ipp"
#endif
