/// \file
/// Replicas in several processes, on one machine or many. Invariants: the rendezvous lives as long
/// as the sessions that share it; whatever ends an exchange between processes, every survivor
/// throws the same PeerLost; the destructor returns in bounded time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/cluster/elastic/elastic_options.hpp"
#include "lockstep/cluster/environment.hpp"
#include "lockstep/cluster/rendezvous/stall.hpp"
#include "lockstep/cluster/resolved_cluster.hpp"
#include "lockstep/cluster/settings.hpp"
#include "lockstep/collectives/hierarchical_group.hpp"
#include "lockstep/collectives/thread_group.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/stop_of_process.hpp"
#include "lockstep/core/threads.hpp"
#include "lockstep/strategies/data_plane.hpp"
#include "lockstep/strategies/elastic_job.hpp"
#include "lockstep/strategies/job_group.hpp"
#include "lockstep/strategies/local_replicas.hpp"
#include "lockstep/strategies/store_plane.hpp"
#include "lockstep/strategies/tcp_plane.hpp"
#include "lockstep/strategies/virtual_shards.hpp"
#include "lockstep/strategies/worker_job.hpp"
#include "lockstep/strategies/worker_place.hpp"

namespace lockstep {

/// tf.distribute.MultiWorkerMirroredStrategy: replicas in all processes of a job, R in each. The
/// members of the job come from TF_CONFIG, torchrun, MPI, Slurm, or the program.
///
/// Results equal those of one device up to rounding, as with Mirrored. All processes must make the
/// same calls of `fit`, `evaluate` and `predict`. Several models may be open at once in one job, if
/// all processes open, use and close them in the same order. When a worker dies, `fit` throws
/// PeerLost in all others, unless the job is elastic: then they go on without it, from a state that
/// one of them has in memory, and a worker that is started again joins them. `open` throws
/// ClusterError if the description is wrong or differs between processes, and PeerLost if not all
/// processes join.
/// \code
///   ls::MultiWorkerMirrored<ls::Cpu>{}                   // the job of TF_CONFIG
///   ls::MultiWorkerMirrored<ls::Cpu>{.replicas = 2}      // two replicas in each worker
///   ls::MultiWorkerMirrored<ls::Cpu, ls::Mpi>{}          // data over MPI
///   ls::MultiWorkerMirrored<ls::Cpu>{.elastic = {.min_workers = 2}}  // survives lost workers
/// \endcode
template <Device D, DataPlane Data = std::conditional_t<HostDevice<D>, Tcp, StorePlane>>
struct MultiWorkerMirrored {
  static constexpr bool can_exchange = GroupsReplicas<D>;
  static_assert(
      can_exchange,
      "lockstep::MultiWorkerMirrored: this device has no collective for its replicas; give it a "
      "member 'template <class HostGroup> using group', or use Cpu, Cuda or Reference");
  using device = D;
  static constexpr std::string_view name = "multi_worker_mirrored";

  /// The replicas of this process. 0: one, or one per GPU. Workers that see the same GPUs share
  /// them, if all of them set this number or none does.
  std::size_t replicas = 0;
  D on{};                          ///< the options of each replica's device
  std::size_t virtual_shards = 0;  ///< as in Mirrored
  ClusterArguments cluster{};      ///< overrides the environment
  StallLimits stall_limits{};      ///< how long a live worker may go without progress
  /// If the workers on a machine leave no core free, binds each replica to its share of the cores,
  /// as Cpu{index} does. The OpenMP threads of the calling thread are bound too, and stay bound.
  bool bind_cores = true;
  bool stragglers = false;  ///< the chief logs each rank's time per phase after each epoch
  /// Whether the job goes on without the workers that it loses; LOCKSTEP_MIN_WORKERS if it is not set.
  /// Needs <lockstep/elastic.hpp>.
  Elastic elastic = Elastic();  // with {}, GCC 12 finds an uninitialized string at -O3
  Environment environment = process_environment();

  /// The opened strategy: this process' place in the job, threads, devices, groups.
  class Session {
   public:
    /// Whether the job may be elastic: on devices that use the host's memory.
    static constexpr bool can_reform = HostDevice<D> && detail::plane_can_reform<Data>;

    explicit Session(MultiWorkerMirrored options) {
      options.elastic = detail::elastic_settings(options.elastic, options.environment);
      if constexpr (can_reform) {
        if (options.elastic) {
          detail::check_elastic_is_included();
          start_elastic(options);
          return;
        }
      } else if (options.elastic) {
        throw UsageError(
            "multi_worker_mirrored: .elastic needs replicas on CPUs that exchange over ls::Tcp; "
            "leave out .elastic and LOCKSTEP_MIN_WORKERS, and let the launcher start the "
            "job again from its checkpoint (lockstep-run --max-restarts)");
      }
      state_.reset(new State(options));
    }

    /// Runs `body` in each replica of this process. \throws PeerLost if another process is lost,
    /// otherwise the cause of a failure in this process.
    void each(FunctionRef<void(const ReplicaContext<D>&)> body) {
      within([&] {
        state_.get_deleter().check("multi_worker_mirrored");
        state_->job.exchange([&] { state_->local->each(body); });
      });
    }
    std::size_t local_replicas() const { return state().local->count(); }
    std::size_t replicas() const { return state().job.total(); }
    std::size_t first_replica() const { return state().job.first(); }
    std::size_t virtual_shards() const { return state().job.virtual_shards(); }
    std::size_t workers() const { return state().job.counts().size(); }
    std::size_t rank() const { return state().job.rank(); }
    bool is_chief() const { return rank() == 0; }

    void agree(std::string_view part, const Signature& fields) {
      if (state().job.is_alone()) return;
      within([&] {
        state_.get_deleter().check("multi_worker_mirrored");
        state_->job.agree(part, fields);
      });
    }
    void note(std::uint64_t step, Phase phase) {
      if (state_) state_->job.note(step, phase);
    }
    void end_epoch(int epoch) {
      within([&] { state_->job.end_epoch(epoch); });
    }
    void fail(const std::string& what) {
      if (!state_) return;
      state_->job.fail(what);
      if (!elastic_ || elastic_->has_ended || state_->job.peers_know()) return;
      // The others go on without this process, whatever its program does next.
      elastic_->job.member().leave();
      elastic_->error = std::make_exception_ptr(
          PeerLost(rank(), elastic_->job.address(rank()),
                   "has left the elastic job because of its error: " + what, std::nullopt));
      elastic_->has_ended = true;
    }

    // --- see ElasticSession ---

    bool is_elastic() const { return elastic_ != nullptr; }
    std::size_t min_workers() const { return elastic_ ? elastic_->options.elastic.min_workers : 1; }
    bool is_one_machine() const { return !elastic_ || elastic_->job.now().is_one_machine; }
    bool has_newcomers() const { return elastic_->job.member().has_newcomers(); }
    bool must_reform() const { return elastic_->job.member().must_reform(); }
    std::uint64_t generation() const { return elastic_ ? elastic_->job.now().number : 0; }
    bool has_new_members() const { return elastic_->job.has_new_members(); }
    bool is_new_member() const { return elastic_->job.is_new_member(); }
    void reject_newcomers() { elastic_->job.member().reject_newcomers(); }
    std::string change() const { return elastic_->job.describe(); }
    void reform(const std::string& why, const std::stop_token& stop) {
      const bool has_trained = state_ && state_->job.has_trained();
      if (state_) state_->job.leave_at_once();
      state_.reset();
      elastic_->job.next(why, has_trained, stop);
    }
    void form() {
      const Generation& now = elastic_->job.now();
      within([&] {
        state_.reset(new State(elastic_->options, &now.cluster, &elastic_->job, now.number == 0));
      });
    }
    void form_alone(std::exception_ptr error) {
      elastic_->error = std::move(error);
      elastic_->job.member().leave();  // whatever the error is, the others go on without it
      state_.reset();
      const ResolvedCluster alone = elastic_->job.alone();
      state_.reset(new State(elastic_->options, &alone, &elastic_->job, false));
    }
    void end() { elastic_->has_ended = true; }

   private:
    using Generation = detail::Generation;

    void start_elastic(const MultiWorkerMirrored& options) {
      elastic_.reset(new ElasticState(options));
      const auto start = [&] {
        for (;;) try {
            return form();
          } catch (const PeerLost& e) {
            reform(e.what(), detail::stop_of_process.token());
          }
      };
      detail::or_evicted(start, [] { return detail::stop_of_process.signal(); });
    }
    /// Runs f(). In an elastic job, whatever ends an exchange is a loss.
    template <class F>
    void within(const F& f) {
      if constexpr (can_reform) {
        if (elastic_ && elastic_->has_ended) [[unlikely]]
          std::rethrow_exception(elastic_->error);
        try {
          f();
        } catch (const PeerLost& e) {
          if (elastic_) elastic_->job.blame(e);
          throw;
        } catch (const CollectiveError& e) {
          if (!elastic_) throw;
          throw_loss(e);
        }
      } else {
        f();
      }
    }
    [[noreturn, gnu::cold]] void throw_loss(const CollectiveError& e) {
      const std::size_t peer = e.peer().value_or(0);
      throw PeerLost(peer, elastic_->job.address(peer), e.what(), std::nullopt);
    }

    using Group = GroupOn<D, HierarchicalGroup<detail::JobGroup>>;

    struct State {
      explicit State(const MultiWorkerMirrored& options,
                     const ResolvedCluster* generation = nullptr,
                     detail::ElasticJob* elastic = nullptr, bool logs_members = true)
          : job({options.virtual_shards, options.stragglers, options.stall_limits, options.cluster,
                 options.environment, generation, elastic != nullptr ? &elastic->member() : nullptr,
                 elastic != nullptr ? &elastic->secret() : nullptr, logs_members}) {
        job.exchange_places(job.fail_on_error([&] {
          detail::WorkerPlace here = options.place_here();
          if constexpr (requires { Group::can_connect(); })
            here.devices_connect = Group::can_connect();
          return here;
        }));
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
        detail::WaitPolicy waits = detail::WaitPolicy::for_replicas(sharers.replicas, threads_here);
        waits.overlap = job.overlaps(waits.overlap || !sharers.is_one_machine);
        // A background thread does not poll, as its core may be needed by others.
        job.connect(&Data::connect,
                    {.layers = waits.spins, .gradients = waits.overlap ? 0 : waits.spins});
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
          auto context = own.open(sharers.replicas, sharers.first + i);
          if constexpr (requires { context.leave_cores_when_contended(); })
            if (sharers.bind) context.leave_cores_when_contended();
          return context;
        });
      }

      detail::WorkerJob job;
      std::optional<Group> layers, gradients;
      std::optional<detail::LocalReplicas<D, Group>> local;
    };
    /// \throws what ended the job of this process, if it could not even go on alone.
    const State& state() const {
      if (!state_) [[unlikely]]
        std::rethrow_exception(elastic_->error);
      return *state_;
    }
    struct ElasticState {
      explicit ElasticState(const MultiWorkerMirrored& given)
          : options(given),
            job({given.elastic, given.virtual_shards, given.requested_replicas(), given.stragglers,
                 given.cluster, given.environment}) {}
      const MultiWorkerMirrored options;
      detail::ElasticJob job;
      std::exception_ptr error{};  // the end of the job for this process
      bool has_ended = false;
    };
    std::unique_ptr<ElasticState, detail::OwningProcess> elastic_;  // null without .elastic
    std::unique_ptr<State, detail::OwningProcess> state_;  // a session may move; uses elastic_
  };

  /// Joins the job and waits until all processes have joined.
  Session open() const {
    if (replicas > ThreadGroup::max_size)
      throw UsageError("multi_worker_mirrored: replicas is {}; it must be at most {}", replicas,
                       ThreadGroup::max_size);
    return Session(*this);
  }

 private:
  static constexpr bool names_devices = requires(D d) {
    D::available_names();
    d.index = -1;
  };
  // On a host device the index is a share of the cores; elsewhere it is a GPU.
  static constexpr bool can_be_bound = HostDevice<D> && requires(D d) { d.index = -1; };

  detail::WorkerPlace place_here() const {
    return detail::WorkerPlace::here(requested_replicas(), virtual_shards > 0 ? 1 : fixed_threads(),
                                     bind_cores && is_unbound(), device_names());
  }
  /// 0: the number depends on which other workers see the same devices.
  std::size_t requested_replicas() const {
    if (replicas > 0) return replicas;
    if constexpr (names_devices) return on.index < 0 ? 0 : 1;
    return detail::default_replicas<D>();
  }
  std::string device_names() const {
    if constexpr (names_devices)
      return on.index < 0 ? D::available_names() : D::available_name(on.index);
    else
      return "-";
  }
  bool is_unbound() const {
    if constexpr (can_be_bound)
      return on.index < 0;
    else
      return false;
  }
  /// The threads of one replica; 0: its share of the cores.
  std::size_t fixed_threads() const {
    if constexpr (requires { on.threads; })
      return static_cast<std::size_t>(std::max(on.threads, 0));
    else
      return 1;
  }
};

}  // namespace lockstep
