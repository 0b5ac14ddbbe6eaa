/// \file
/// Parameter servers: some processes own the weights, the others compute gradients. Invariants: all
/// processes make the same calls; after a step all of them hold the same weights; the optimizer's
/// buffers exist once in the job, on the servers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/cluster/description/environment.hpp"
#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/rendezvous/stall.hpp"
#include "lockstep/collectives/algorithms/process_group.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/strategies/job/data_plane.hpp"
#include "lockstep/strategies/job/worker_place.hpp"
#include "lockstep/strategies/local_replicas.hpp"
#include "lockstep/strategies/membership.hpp"
#include "lockstep/strategies/planes/tcp_plane.hpp"
#include "lockstep/strategies/virtual_shards.hpp"

namespace lockstep {

struct Served;
template <class Policy>
struct Recoverable;

/// tf.distribute.ParameterServerStrategy, synchronous or asynchronous: the tasks `ps` own the
/// weights and the optimizer's buffers, divided evenly among them (whole parameters if the optimizer
/// clips by norm or needs them whole, as Lamb does); the tasks `worker` compute the gradients of
/// their part of each batch; a task `chief` only coordinates, reports and writes files, and without
/// one worker 0 does that too.
///
///     worker 0   gradients ──┐ push: each range         ┌── pull: all weights
///     worker 1   gradients ──┼──> ps 0  sum, update ────┤
///     worker 2   gradients ──┴──> ps 1  sum, update ────┴──> the next step, everywhere
///
/// Results equal those of one device up to rounding, as with MultiWorkerMirrored; with
/// `virtual_shards` they are bit-identical to those of OneDevice with as many, for any number of
/// workers and servers. All processes, servers and chief included, start the same program, read the
/// same data and make the same calls of `fit`, `evaluate` and `predict`; servers get no examples. A
/// process that dies ends the job: the others throw PeerLost, which names it. With ls::Elastic and
/// .min_workers, which counts workers only, they go on without a worker or a chief, and with
/// .replicas = 2 also without a server: the others divide its range among themselves.
///
/// With `asynchronous` a worker makes whole steps of its own: it gets the number of the next batch
/// of the epoch from the first server, pulls the weights, and pushes its gradients, which each
/// server applies at once. The gradients of a step may miss up to `staleness` updates that others
/// made meanwhile; a step that could miss more waits before it begins. Each batch of an epoch is
/// applied once, in each range of the weights, unlike TensorFlow's at least once. With staleness 0
/// the steps are those of one device, bit by bit. An epoch, or `steps_per_execution` steps if that
/// is more than 1, is one asynchronous phase; before and after it all processes hold the same
/// weights, so that validation, checkpoints and `evaluate` are exact.
///
/// With `backup_workers` = b a synchronous step does not wait for the b slowest workers, as
/// tf.compat.v1.train.SyncReplicasOptimizer's, but uses every example. The batch has W - b slices for W
/// workers, or `virtual_shards`. The first server hands them out one by one; when none is left, up to b
/// idle workers compute copies of those that are not ready. The first gradients of each slice count,
/// the others are dropped. So the bits do not depend on which workers are slow, if all of them use
/// equally many threads. Steps are in phases, as asynchronous ones.
///
/// The job comes from TF_CONFIG with the jobs `ps` and `worker`, from `lockstep-run --ps`, or from
/// the program. Each process has one replica.
/// \throws ClusterError at open, if the job has no ps or no worker; UsageError if the model has
/// fewer parameters than the job has servers.
/// \code
///   #include <lockstep/parameter_server.hpp>
///   ls::Model model{Cnn{}, ls::ParameterServer<ls::Cpu>{}, ls::SparseCategoricalCrossentropy{}, ls::Adam{}};
///   ls::ParameterServer<ls::Cpu, ls::Tcp, ls::Elastic>{.replicas = 2, .elastic = {.min_workers = 1}}
/// \endcode
template <Device D, DataPlane Data = Tcp, class Membership = FixedWorkers>
struct ParameterServer {
  static constexpr bool is_on_host = HostDevice<D>;
  static_assert(
      is_on_host,
      "lockstep::ParameterServer: servers and workers exchange over the host's memory; use "
      "Cpu or Reference");
  using device = D;
  static constexpr std::string_view name = "parameter_server";
  static constexpr bool has_servers = true;
  /// Whether the type may have ls::Elastic.
  static constexpr bool can_be_elastic = detail::plane_can_reform<Data>;
  using update_policy =
      std::conditional_t<std::is_same_v<Membership, FixedWorkers>, Served, Recoverable<Served>>;
  using data_plane = Data;
  using Session = typename detail::SessionOf<Membership, ParameterServer>::type;

  D on{};                          ///< the options of the replica's device
  std::size_t virtual_shards = 0;  ///< as in Mirrored
  /// The servers that own each range of the weights, at most as many as there are. All of them make
  /// its updates, so that in an elastic job its part of the optimizer's buffers survives the others.
  std::size_t replicas = 1;
  ClusterArguments cluster{};  ///< overrides the environment
  StallLimits stall_limits{};  ///< how long a live process may go without progress
  bool stragglers = false;     ///< the chief logs each rank's time per phase after each epoch
  bool asynchronous = false;   ///< each worker makes steps of its own
  /// The most updates that the gradients of an asynchronous step may miss. Default: two for each
  /// worker, so that equally fast ones never wait.
  std::optional<std::uint64_t> staleness{};
  /// Workers that a synchronous step need not wait for: the slowest ones. Less than the workers.
  std::size_t backup_workers = 0;
  /// Only the servers have the tables of embeddings, with asynchronous steps: other processes get the
  /// rows of a batch. Calls that need all weights, such as save_weights, are refused; checkpoints
  /// have the form of all others.
  bool tables_on_servers = false;
  /// As in MultiWorkerMirrored, for workers. Servers and chief compute while workers wait.
  bool bind_cores = true;
  /// With ls::Elastic, whether the job goes on without the processes that it loses.
  [[no_unique_address]] Membership elastic = Membership();  // with {}, g++ 12 warns at -O3
  Environment environment = process_environment();

  /// Joins the job and waits until all processes have joined.
  /// \throws UsageError if `staleness` or `tables_on_servers` is set without `asynchronous`, or
  /// `backup_workers` with it.
  Session open() const {
    if (staleness && !asynchronous)
      throw UsageError(
          "parameter_server: staleness is {}, but synchronous steps miss no update; set "
          ".asynchronous = true, or leave it out",
          *staleness);
    if (tables_on_servers && !asynchronous)
      throw UsageError(
          "parameter_server: .tables_on_servers is set, but synchronous steps{} need all weights in "
          "each process; set .asynchronous = true{}, or leave out .tables_on_servers",
          backup_workers > 0 ? " with backup workers" : "",
          backup_workers > 0 ? " instead of .backup_workers" : "");
    if (backup_workers > 0 && asynchronous)
      throw UsageError(
          "parameter_server: backup_workers is {}, but asynchronous steps wait for no worker; leave "
          "out .asynchronous, or .backup_workers",
          backup_workers);
    if constexpr (!std::is_same_v<Membership, FixedWorkers>)
      if (tables_on_servers)
        throw UsageError(
            "parameter_server: .tables_on_servers is set, but an elastic job moves tables between "
            "processes as a whole; leave out ls::Elastic, or the option");
    if constexpr (!ConnectsPairs<Data>)
      if (asynchronous || backup_workers > 0)
        throw UsageError(
            "parameter_server: {} need connections of two processes each, which the data plane {} "
            "cannot make; use ls::Tcp",
            asynchronous ? "asynchronous steps" : "backup workers", Data::name);
    ParameterServer with = *this;
    with.cluster.has_servers = true;
    return Session(with);
  }

 private:
  template <class>
  friend class detail::WorkerSession;
  template <class>
  friend class detail::ElasticWorkerSession;

  static constexpr bool names_devices = false;

  static std::size_t requested_replicas() { return 1; }
  detail::WorkerPlace place_here() const {
    return detail::WorkerPlace::here(1, virtual_shards > 0 ? 1 : detail::fixed_threads(on),
                                     bind_cores && detail::is_unbound(on));
  }
};

}  // namespace lockstep
