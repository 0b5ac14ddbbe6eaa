/// \file
/// The models of a process that are open at once share its place in the job. Invariants: a process
/// has one rendezvous in a job; all ranks open and close their models in the same order, so a model
/// has the same number on all; closing the last one leaves the job.
///
/// \code
///   model 0   model 1        each: its own mesh, groups, replicas
///       \      /
///       SharedJob            one: rendezvous, progress, news of a loss
/// \endcode
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/cluster/resolved_cluster.hpp"
#include "lockstep/collectives/gloo_store.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/exchange_progress.hpp"

namespace lockstep::detail {

class SharedJob;
struct JobSlot;

/// One model's part of the process' job.
/// \code
///   JobSession session(where, limits, [&] { return RendezvousOptions{.cluster = where}; });
///   session.rendezvous().barrier("ready", limit);
///   session.leave();
/// \endcode
class JobSession {
 public:
  /// Joins the job if this is the first open model of the process: only then are the options made.
  /// \throws what Rendezvous throws; UsageError if the open job has other limits.
  LOCKSTEP_COLD_DECL JobSession(const ResolvedCluster& where, const StallLimits& limits,
                                const std::function<RendezvousOptions()>& make_options);
  JobSession(const JobSession&) = delete;
  JobSession& operator=(const JobSession&) = delete;
  LOCKSTEP_COLD_DECL ~JobSession();

  LOCKSTEP_COLD_DECL Rendezvous& rendezvous();
  /// 0 for the first model that the job has in this process; the same on all ranks.
  std::uint64_t number() const { return number_; }
  /// A name in the job's store that belongs to this model.
  LOCKSTEP_COLD_DECL std::string name(std::string_view what) const;

  /// As Rendezvous::note_progress. The job's step counts those of all models.
  LOCKSTEP_DECL void note_progress(std::uint64_t step, Phase phase, bool first_step);
  /// As Rendezvous::on_loss, for this model.
  LOCKSTEP_COLD_DECL void on_loss(std::function<void(const PeerLost&)> callback);
  /// As Rendezvous::on_exchange, for this model.
  LOCKSTEP_COLD_DECL void on_exchange(std::function<ExchangeProgress()> progress);
  /// Removes the callbacks of this model; none runs when this returns.
  LOCKSTEP_COLD_DECL void unsubscribe();

  /// Before the model's connections close: waits until the other ranks no longer need them. The
  /// last model leaves the job. As long as the job's leave timeout at most.
  LOCKSTEP_COLD_DECL void leave() noexcept;

 private:
  std::shared_ptr<JobSlot> slot_;
  std::unique_lock<std::mutex> closing_;  // outlives job_
  std::shared_ptr<SharedJob> job_;
  std::uint64_t number_ = 0, step_ = 0;
  bool has_left_ = false;
};

/// Gloo's addresses travel through the rendezvous.
class RendezvousStore final : public GlooStore {
 public:
  explicit RendezvousStore(JobSession& session) : session_(&session) {}
  LOCKSTEP_COLD_DECL void set(const std::string& key, const std::string& bytes) override;
  LOCKSTEP_COLD_DECL std::optional<std::string> get(const std::string& key,
                                                    Deadline deadline) override;
  LOCKSTEP_COLD_DECL void on_loss(std::function<void()> lost) override;

 private:
  JobSession* session_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/strategies/shared_job.ipp"
#endif
