/// \file
/// The membership in a job that all open models of a process share. Invariants: a process has one
/// rendezvous per job; all ranks open and close their models in the same order, so that a model has
/// the same number on all ranks; closing the last model leaves the job.
///
/// \code
///   model 0   model 1        each: its own connections, groups, replicas
///       \      /
///       SharedJob            one: rendezvous, progress, notification of a loss
/// \endcode
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/exchange_progress.hpp"

namespace lockstep::detail {

class SharedJob;
struct JobSlot;

/// One model's share of the process' job.
/// \code
///   JobSession session(where, limits, [&] { return RendezvousOptions{.cluster = where}; });
///   session.rendezvous().barrier("ready", limit);
///   session.leave();
/// \endcode
class JobSession {
 public:
  /// Joins the job if this is the first open model of the process; only then calls make_options.
  /// \throws what Rendezvous throws; UsageError if the job was joined with other limits.
  LOCKSTEP_COLD_DECL JobSession(const ResolvedCluster& where, const StallLimits& limits,
                                const std::function<RendezvousOptions()>& make_options);
  JobSession(const JobSession&) = delete;
  JobSession& operator=(const JobSession&) = delete;
  LOCKSTEP_COLD_DECL ~JobSession();

  LOCKSTEP_COLD_DECL Rendezvous& rendezvous();
  /// The number of this model, counted from 0 in the order of opening; the same on all ranks.
  std::uint64_t number() const { return number_; }
  /// A key of the job's store that is unique to this model.
  LOCKSTEP_COLD_DECL std::string name(std::string_view what) const;

  /// See Rendezvous::note_progress. The job's step counter sums the steps of all models.
  LOCKSTEP_DECL void note_progress(std::uint64_t step, Phase phase, bool first_step);
  /// Sets this model's callback for a loss; see Rendezvous::on_loss.
  LOCKSTEP_COLD_DECL void on_loss(std::function<void(const PeerLost&)> callback);
  /// Sets the function that reports this model's exchanges; see Rendezvous::on_exchange.
  LOCKSTEP_COLD_DECL void on_exchange(std::function<ExchangeProgress()> progress);
  /// Removes this model's callbacks; none runs any more when this returns.
  LOCKSTEP_COLD_DECL void unsubscribe();

  /// Call it before the model's connections close: waits until the other ranks no longer need them,
  /// at most for the job's leave timeout. The last model leaves the job.
  LOCKSTEP_COLD_DECL void leave() noexcept;

 private:
  std::shared_ptr<JobSlot> slot_;
  std::unique_lock<std::mutex> closing_;  // declared before job_, so that it is released after it
  std::shared_ptr<SharedJob> job_;
  std::uint64_t number_ = 0, step_ = 0;
  bool has_left_ = false;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/strategies/job/shared_job.ipp"
#endif
