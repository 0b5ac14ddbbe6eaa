/// \file
/// The session of MultiWorkerMirrored and ParameterServer: the place of this process in the job, its
/// threads, devices and groups. Invariants: the rendezvous lives as long as the sessions that share it; whatever ends
/// an exchange between processes, every survivor throws the same PeerLost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/description/environment.hpp"
#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/collectives/hierarchical_group.hpp"
#include "lockstep/collectives/thread_group.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/process/threads.hpp"
#include "lockstep/strategies/job/job_group.hpp"
#include "lockstep/strategies/job/worker_job.hpp"
#include "lockstep/strategies/job/worker_place.hpp"
#include "lockstep/strategies/local_replicas.hpp"
#include "lockstep/strategies/virtual_shards.hpp"

namespace lockstep::detail {

/// \throws UsageError if LOCKSTEP_MIN_WORKERS is set, since a strategy without ls::Elastic ends at a
/// loss. `can_be` is whether its type could have it.
[[gnu::cold]] inline void check_not_elastic(const Environment& environment, bool can_be,
                                            std::string_view strategy) {
  if (!variable(environment, "LOCKSTEP_MIN_WORKERS")) return;
  if (can_be)
    throw UsageError(
        "{}: LOCKSTEP_MIN_WORKERS is set, but the program's strategy is not elastic; write ls::{}"
        "<ls::Cpu, ls::Tcp, ls::Elastic> and #include <lockstep/elastic.hpp>, or unset it",
        strategy, strategy == "parameter_server" ? "ParameterServer" : "MultiWorkerMirrored");
  throw UsageError(
      "{}: LOCKSTEP_MIN_WORKERS needs replicas on CPUs that exchange over ls::Tcp; unset it, and "
      "let the launcher start the job again from its checkpoint (lockstep-run --max-restarts)",
      strategy);
}

/// A session of a job whose workers stay the same.
template <class Strategy>
class WorkerSession {
  using D = typename Strategy::device;

 public:
  static constexpr bool can_reform = false;

  explicit WorkerSession(const Strategy& options) {
    check_not_elastic(options.environment, Strategy::can_be_elastic, Strategy::name);
    start(options, options_of(options));
  }

  /// Runs `body` in each replica of this process. \throws PeerLost if another process is lost,
  /// otherwise the cause of a failure in this process.
  void each(FunctionRef<void(const ReplicaContext<D>&)> body) {
    state_.get_deleter().check(Strategy::name);
    state_->job.exchange([&] { state_->local->each(body); });
  }
  std::size_t local_replicas() const { return state_->local->count(); }
  std::size_t replicas() const { return state_->job.total(); }
  std::size_t first_replica() const { return state_->job.first(); }
  std::size_t virtual_shards() const { return state_->job.virtual_shards(); }
  std::size_t workers() const { return state_->job.counts().size(); }
  std::size_t rank() const { return state_->job.rank(); }
  bool is_chief() const { return rank() == 0; }
  /// Those that compute and those that own weights, in a job with parameter servers.
  ReplicaRoles roles() const
    requires requires { Strategy::has_servers; }
  {
    return state_->job.roles();
  }
  /// Whether `fit` makes its steps in phases, in which nothing is collective.
  bool has_phases() const
    requires requires { Strategy::has_servers; }
  {
    return state_->job.has_phases();
  }
  /// Workers that a synchronous step need not wait for.
  std::size_t backup_workers() const
    requires requires { Strategy::has_servers; }
  {
    return state_->job.backup_workers();
  }
  /// The updates that a step may miss.
  std::uint64_t staleness() const
    requires requires { Strategy::has_servers; }
  {
    const std::uint64_t given = state_->job.staleness().value_or(0);
    return given == default_staleness ? 2 * roles().computing.count : given;
  }
  /// The groups of this process with one other each, by rank, for phases.
  std::map<std::size_t, ProcessGroup>& pairs()
    requires requires { Strategy::has_servers; }
  {
    return state_->job.pairs();
  }

  void agree(std::string_view part, const Signature& fields) {
    if (state_->job.is_alone()) return;
    state_.get_deleter().check(Strategy::name);
    state_->job.agree(part, fields);
  }
  void note(std::uint64_t step, Phase phase) { state_->job.note(step, phase); }
  void end_epoch(int epoch) { state_->job.end_epoch(epoch); }
  void fail(const std::string& what) { state_->job.fail(what); }

 protected:
  WorkerSession() = default;

  static WorkerOptions options_of(const Strategy& options) {
    WorkerOptions result{options.virtual_shards, options.stragglers, options.stall_limits,
                         options.cluster, options.environment};
    if constexpr (requires { Strategy::has_servers; }) {
      result.copies = options.replicas;
      if (options.asynchronous) result.staleness = options.staleness.value_or(default_staleness);
      result.backup_workers = options.backup_workers;
    }
    return result;
  }
  /// Joins the job, and makes the replicas of this process.
  void start(const Strategy& options, const WorkerOptions& joined) {
    state_.reset(new State(options, joined));
  }

  using Group = lockstep::GroupOn<D, HierarchicalGroup<JobGroup>>;

  struct State {
    State(const Strategy& options, const WorkerOptions& joined) : job(joined) {
      job.exchange_places(job.fail_on_error([&] {
        WorkerPlace here = options.place_here();
        if constexpr (requires { Group::can_connect(); })
          here.devices_connect = Group::can_connect();
        return here;
      }));
      job.fail_on_error([&] { start(options); });
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() { job.leave(); }

    void start(const Strategy& options) {
      const std::vector<WorkerPlace>& places = job.places();
      const std::size_t mine = job.counts()[job.rank()];
      const D device = options.virtual_shards > 0 ? of_one_thread(options.on) : options.on;
      const CoreSharers sharers = job.core_sharers();
      const CoreSharers all(places, job.rank());  // servers need a core while workers wait
      const std::size_t threads_here = all.replicas * threads_of(device, sharers.replicas);
      WaitPolicy waits = WaitPolicy::for_replicas(all.replicas, threads_here);
      waits.overlap = job.overlaps(waits.overlap || !all.is_one_machine);
      // A background thread does not poll, as its core may be needed by others.
      job.connect(&Strategy::data_plane::connect,
                  {.layers = waits.spins, .gradients = waits.overlap ? 0 : waits.spins});
      if constexpr (ConnectsPairs<typename Strategy::data_plane>)
        if (job.has_phases()) job.connect_pairs(&Strategy::data_plane::connect_pairs);
      const ThreadGroup::Options threads{
          .size = mine, .timeout = job.timeout(), .order = job.order(), .spins = waits.spins};
      layers.emplace(job.layers(), job.counts(), threads);
      gradients.emplace(job.gradients(), job.counts(), threads);
      job.subscribe([this] {
        layers->abort();
        gradients->abort();
      });
      local.emplace(mine, job.first(), *layers, *gradients, waits, [&](std::size_t i) {
        D own = device;
        if constexpr (can_be_bound<D>)
          if (sharers.bind) own.index = static_cast<int>(sharers.first + i);
        if constexpr (Strategy::names_devices)
          if (own.index < 0) own.index = static_cast<int>(places[job.rank()].device(i));
        auto context = own.open(sharers.replicas, sharers.first + i);
        if constexpr (requires { context.leave_cores_when_contended(); })
          // A server would be taken for another program, and two workers end on one core.
          if (sharers.bind && all.replicas == sharers.replicas)
            context.leave_cores_when_contended();
        return context;
      });
    }

    WorkerJob job;
    std::optional<Group> layers, gradients;
    std::optional<LocalReplicas<D, Group>> local;
  };

  std::unique_ptr<State, OwningProcess> state_;  // a session may move
};

}  // namespace lockstep::detail
