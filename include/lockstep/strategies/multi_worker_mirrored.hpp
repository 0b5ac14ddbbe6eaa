/// \file
/// Replicas in several processes, on one machine or many. Invariants: the rendezvous lives as long
/// as the sessions that share it; whatever ends an exchange between processes, every survivor
/// throws the same PeerLost; the destructor returns in bounded time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/cluster/description/elastic_options.hpp"
#include "lockstep/cluster/description/environment.hpp"
#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/rendezvous/stall.hpp"
#include "lockstep/collectives/thread_group.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/strategies/job/data_plane.hpp"
#include "lockstep/strategies/job/worker_place.hpp"
#include "lockstep/strategies/local_replicas.hpp"
#include "lockstep/strategies/membership.hpp"
#include "lockstep/strategies/planes/store_plane.hpp"
#include "lockstep/strategies/planes/tcp_plane.hpp"
#include "lockstep/strategies/virtual_shards.hpp"
#include "lockstep/strategies/worker_session.hpp"

namespace lockstep {

/// tf.distribute.MultiWorkerMirroredStrategy: replicas in all processes of a job, R in each. The
/// members of the job come from TF_CONFIG, torchrun, MPI, Slurm, or the program.
///
/// Results equal those of one device up to rounding, as with Mirrored. All processes must make the
/// same calls of `fit`, `evaluate` and `predict`. Several models may be open at once in one job, if
/// all processes open, use and close them in the same order. When a worker dies, `fit` throws
/// PeerLost in all others. With ls::Elastic and .min_workers they go on without it instead, from a
/// state that one of them has in memory, and a worker that is started again joins them. `open`
/// throws ClusterError if the description is wrong or differs between processes, and PeerLost if not
/// all processes join.
/// \code
///   ls::MultiWorkerMirrored<ls::Cpu>{}                   // the job of TF_CONFIG
///   ls::MultiWorkerMirrored<ls::Cpu>{.replicas = 2}      // two replicas in each worker
///   ls::MultiWorkerMirrored<ls::Cpu, ls::Mpi>{}          // data over MPI
///   ls::MultiWorkerMirrored<ls::Cpu, ls::Tcp, ls::Elastic>{.elastic = {.min_workers = 2}}
/// \endcode
template <Device D, DataPlane Data = std::conditional_t<HostDevice<D>, Tcp, StorePlane>,
          class Membership = FixedWorkers>
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
  /// With ls::Elastic, whether the job goes on without the workers that it loses.
  [[no_unique_address]] Membership elastic = Membership();  // with {}, g++ 12 warns at -O3
  Environment environment = process_environment();

  /// Whether the type may have ls::Elastic: on devices that use the host's memory.
  static constexpr bool can_be_elastic = HostDevice<D> && detail::plane_can_reform<Data>;
  using data_plane = Data;
  /// The opened strategy.
  using Session = typename detail::SessionOf<Membership, MultiWorkerMirrored>::type;

  /// Joins the job and waits until all processes have joined.
  Session open() const {
    if (replicas > ThreadGroup::max_size)
      throw UsageError("multi_worker_mirrored: replicas is {}; it must be at most {}", replicas,
                       ThreadGroup::max_size);
    return Session(*this);
  }

 private:
  template <class>
  friend class detail::WorkerSession;
  template <class>
  friend class detail::ElasticWorkerSession;

  static constexpr bool names_devices = requires(D d) {
    D::available_names();
    d.index = -1;
  };

  detail::WorkerPlace place_here() const {
    return detail::WorkerPlace::here(requested_replicas(),
                                     virtual_shards > 0 ? 1 : detail::fixed_threads(on),
                                     bind_cores && detail::is_unbound(on), device_names());
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
};

}  // namespace lockstep
