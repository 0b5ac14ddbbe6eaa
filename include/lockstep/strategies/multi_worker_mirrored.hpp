/// \file
/// Replicas in several processes, on one machine or many. Invariants: the rendezvous lasts as long
/// as the sessions that share it; whatever ends an exchange between processes, every survivor
/// throws the same PeerLost; the destructor ends in bounded time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/environment.hpp"
#include "lockstep/cluster/rendezvous/stall.hpp"
#include "lockstep/cluster/resolved_cluster.hpp"
#include "lockstep/collectives/hierarchical_group.hpp"
#include "lockstep/collectives/thread_group.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/cores.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/threads.hpp"
#include "lockstep/strategies/job_group.hpp"
#include "lockstep/strategies/local_replicas.hpp"
#include "lockstep/strategies/virtual_shards.hpp"
#include "lockstep/strategies/worker_job.hpp"
#include "lockstep/strategies/worker_place.hpp"

namespace lockstep {

/// tf.distribute.MultiWorkerMirroredStrategy: replicas in all processes of a job, R in each. Who is
/// in the job is told by TF_CONFIG, torchrun, MPI, Slurm, or the program.
///
/// The results are those of one device up to rounding, as with Mirrored; each process must make the
/// same calls of `fit`, `evaluate` and `predict`. Several models may be open at once, in one job,
/// if all processes open, use and close them in the same order. When a worker dies, `fit` throws
/// PeerLost in all others. Errors of `open`: ClusterError if the description is wrong or the
/// processes differ, PeerLost if not all come.
/// \code
///   ls::MultiWorkerMirrored<ls::Cpu>{}                   // as TF_CONFIG says
///   ls::MultiWorkerMirrored<ls::Cpu>{.replicas = 2}      // two replicas in each worker
/// \endcode
template <Device D>
struct MultiWorkerMirrored {
  static constexpr bool can_exchange = GroupsReplicas<D>;
  static_assert(
      can_exchange,
      "lockstep::MultiWorkerMirrored: replicas on this device have no group; give the device a "
      "member 'template <class HostGroup> using group', or use Cpu, Cuda or Reference");
  using device = D;
  static constexpr std::string_view name = "multi_worker_mirrored";

  /// Of this process. 0: one, or one on each of its GPUs; workers that see the same GPUs share
  /// them, if all say how many, or none does.
  std::size_t replicas = 0;
  D on{};                          ///< the options of each replica's device
  std::size_t virtual_shards = 0;  ///< as in Mirrored
  ClusterArguments cluster{};      ///< goes before the environment
  StallLimits stall_limits{};      ///< how long a live worker may make no progress
  /// If the workers on a machine leave none of its cores free, each replica computes on its share
  /// of them, as Cpu{index} does: also the OpenMP threads of the calling thread, which keep it.
  bool bind_cores = true;
  bool stragglers = false;  ///< the chief logs after each epoch how long each rank was in what
  Environment environment = process_environment();

  /// The opened strategy: this process' place in the job, threads, devices, groups.
  class Session {
   public:
    explicit Session(const MultiWorkerMirrored& options) : state_(new State(options)) {}

    /// Runs `body` for each replica of this process. \throws PeerLost if another process is lost,
    /// what the first failing replica of this process threw otherwise.
    void each(FunctionRef<void(const ReplicaContext<D>&)> body) {
      state_.get_deleter().check("multi_worker_mirrored");
      state_->job.exchange([&] { state_->local->each(body); });
    }
    std::size_t local_replicas() const { return state_->local->count(); }
    std::size_t replicas() const { return state_->job.total(); }
    std::size_t first_replica() const { return state_->job.first(); }
    std::size_t virtual_shards() const { return state_->job.virtual_shards(); }
    std::size_t workers() const { return state_->job.counts().size(); }
    std::size_t rank() const { return state_->job.rank(); }
    bool is_chief() const { return rank() == 0; }

    void agree(std::string_view part, const Signature& fields) {
      if (state_->job.is_alone()) return;
      state_.get_deleter().check("multi_worker_mirrored");
      state_->job.agree(part, fields);
    }
    void note(std::uint64_t step, Phase phase) { state_->job.note(step, phase); }
    void end_epoch(int epoch) { state_->job.end_epoch(epoch); }
    void fail(const std::string& what) { state_->job.fail(what); }

   private:
    using Group = GroupOn<D, HierarchicalGroup<detail::JobGroup>>;

    struct State {
      explicit State(const MultiWorkerMirrored& options)
          : job({options.virtual_shards, options.stragglers, options.stall_limits, options.cluster,
                 options.environment}) {
        job.exchange_places(job.fail_on_error([&] { return options.place_here(); }));
        job.fail_on_error([&] { start(options); });
      }
      State(const State&) = delete;
      State& operator=(const State&) = delete;
      ~State() { job.leave(); }

      void start(const MultiWorkerMirrored& options) {
        const std::vector<detail::WorkerPlace>& places = job.places();
        const std::size_t mine = job.counts()[job.rank()];
        const D device =
            options.virtual_shards > 0 ? detail::of_one_thread(options.on) : options.on;
        const detail::CoreSharers sharers(places, job.rank());
        const std::size_t threads_here =
            sharers.replicas * detail::threads_of(device, sharers.replicas);
        job.connect(sharers.bind ? sharers.cores(0) : detail::Cores::of_process());
        detail::WaitPolicy waits = detail::WaitPolicy::for_replicas(sharers.replicas, threads_here);
        waits.overlap = job.overlaps(waits.overlap || !sharers.is_one_machine);
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
          if constexpr (can_be_bound)
            if (sharers.bind) own.index = static_cast<int>(sharers.first + i);
          if constexpr (names_devices)
            if (own.index < 0) own.index = static_cast<int>(places[job.rank()].device(i));
          return own.open(sharers.replicas, sharers.first + i);
        });
      }

      detail::WorkerJob job;
      std::optional<Group> layers, gradients;
      std::optional<detail::LocalReplicas<D, Group>> local;
    };
    std::unique_ptr<State, detail::OwningProcess> state_;  // addresses stay when the session moves
  };

  /// Joins the job; waits until all are there.
  Session open() const {
    if (replicas > ThreadGroup::max_size)
      throw UsageError("multi_worker_mirrored: {} replicas in a process; there may be 1 to {}",
                       replicas, ThreadGroup::max_size);
    return Session(*this);
  }

 private:
  static constexpr bool names_devices = requires(D d) {
    D::available_names();
    d.index = -1;
  };
  // An index names a share of the cores there, a GPU elsewhere.
  static constexpr bool can_be_bound = HostDevice<D> && requires(D d) { d.index = -1; };

  detail::WorkerPlace place_here() const {
    return detail::WorkerPlace::here(requested_replicas(), virtual_shards > 0 ? 1 : fixed_threads(),
                                     bind_cores && is_unbound(), device_names());
  }
  /// 0: that depends on who else sees the devices.
  std::size_t requested_replicas() const {
    if (replicas > 0) return replicas;
    if constexpr (names_devices) return on.index < 0 ? 0 : 1;
    return detail::default_replicas<D>();
  }
  std::string device_names() const {
    if constexpr (names_devices)
      if (on.index < 0) return D::available_names();
    return "-";
  }
  bool is_unbound() const {
    if constexpr (can_be_bound)
      return on.index < 0;
    else
      return false;
  }
  /// Of one replica; 0: as many as its share of the cores.
  std::size_t fixed_threads() const {
    if constexpr (requires { on.threads; })
      return static_cast<std::size_t>(std::max(on.threads, 0));
    else
      return 1;
  }
};

}  // namespace lockstep
