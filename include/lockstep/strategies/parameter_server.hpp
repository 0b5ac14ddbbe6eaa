/// \file
/// Parameter servers: some processes own the weights, the others compute gradients. Invariants: all
/// processes make the same calls; after a step all of them hold the same weights; the optimizer's
/// buffers exist once in the job, on the servers.
#pragma once

#include <cstddef>
#include <string_view>

#include "lockstep/cluster/description/environment.hpp"
#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/rendezvous/stall.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/strategies/job/data_plane.hpp"
#include "lockstep/strategies/job/worker_place.hpp"
#include "lockstep/strategies/local_replicas.hpp"
#include "lockstep/strategies/planes/tcp_plane.hpp"
#include "lockstep/strategies/virtual_shards.hpp"
#include "lockstep/strategies/worker_session.hpp"

namespace lockstep {

struct Served;

namespace detail {

/// The session of ParameterServer.
template <class Strategy>
class ServerSession : public WorkerSession<Strategy> {
  using Base = WorkerSession<Strategy>;

 public:
  explicit ServerSession(const Strategy& options) {
    if (variable(options.environment, "LOCKSTEP_MIN_WORKERS"))
      throw UsageError(
          "parameter_server: LOCKSTEP_MIN_WORKERS is set, but a job with parameter servers ends at "
          "a loss; unset it, and let the launcher start the job again from its checkpoint "
          "(lockstep-run --max-restarts)");
    Base::start(options, Base::options_of(options));
  }
  /// The workers compute, the servers own the weights.
  ReplicaRoles roles() const { return this->state_->job.roles(); }
};

}  // namespace detail

/// tf.distribute.ParameterServerStrategy, synchronous: the tasks `ps` own the weights and the
/// optimizer's buffers, divided evenly among them (whole parameters if the optimizer clips by norm
/// or needs them whole, as Lamb does); the tasks `worker` compute the gradients of their part of
/// each batch; a task `chief` only coordinates, reports and writes files, and without one worker 0
/// does that too.
///
///     worker 0   gradients ──┐ push: each range         ┌── pull: all weights
///     worker 1   gradients ──┼──> ps 0  sum, update ────┤
///     worker 2   gradients ──┴──> ps 1  sum, update ────┴──> the next step, everywhere
///
/// Results equal those of one device up to rounding, as with MultiWorkerMirrored; with
/// `virtual_shards` they are bit-identical to those of OneDevice with as many, for any number of
/// workers and servers. All processes, servers and chief included, start the same program, read the
/// same data and make the same calls of `fit`, `evaluate` and `predict`; servers get no examples. A
/// process that dies ends the job: the others throw PeerLost, which names it.
///
/// The job comes from TF_CONFIG with the jobs `ps` and `worker`, from `lockstep-run --ps`, or from
/// the program. Each process has one replica. Unlike TensorFlow's strategy, which is asynchronous,
/// every example of an epoch counts once.
/// \throws ClusterError at open, if the job has no ps or no worker; UsageError if the model has
/// fewer parameters than the job has servers.
/// \code
///   #include <lockstep/parameter_server.hpp>
///   ls::Model model{Cnn{}, ls::ParameterServer<ls::Cpu>{}, ls::SparseCategoricalCrossentropy{}, ls::Adam{}};
/// \endcode
template <Device D, DataPlane Data = Tcp>
struct ParameterServer {
  static constexpr bool is_on_host = HostDevice<D>;
  static_assert(
      is_on_host,
      "lockstep::ParameterServer: servers and workers exchange over the host's memory; use "
      "Cpu or Reference");
  using device = D;
  static constexpr std::string_view name = "parameter_server";
  using update_policy = Served;
  using data_plane = Data;
  using Session = detail::ServerSession<ParameterServer>;

  D on{};                          ///< the options of the replica's device
  std::size_t virtual_shards = 0;  ///< as in Mirrored
  ClusterArguments cluster{};      ///< overrides the environment
  StallLimits stall_limits{};      ///< how long a live process may go without progress
  bool stragglers = false;         ///< the chief logs each rank's time per phase after each epoch
  /// As in MultiWorkerMirrored, for workers. Servers and chief compute while workers wait.
  bool bind_cores = true;
  Environment environment = process_environment();

  /// Joins the job and waits until all processes have joined.
  Session open() const {
    ParameterServer with = *this;
    with.cluster.has_servers = true;
    return Session(with);
  }

 private:
  template <class>
  friend class detail::WorkerSession;

  static constexpr bool names_devices = false;

  detail::WorkerPlace place_here() const {
    return detail::WorkerPlace::here(1, virtual_shards > 0 ? 1 : detail::fixed_threads(on),
                                     bind_cores && detail::is_unbound(on));
  }
};

}  // namespace lockstep
