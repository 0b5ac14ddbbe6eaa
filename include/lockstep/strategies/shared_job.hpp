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

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/cluster/resolved_cluster.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/exchange_progress.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::detail {

/// What the models of a process share. Lives as long as one of them.
class SharedJob {
 public:
  explicit SharedJob(RendezvousOptions options)
      : limits_(options.stall_limits),
        timeouts_(options.cluster.timeouts),
        rendezvous_(std::move(options)) {
    rendezvous_.on_loss([this](const PeerLost& loss) { notify(loss); });
    rendezvous_.on_exchange([this] { return progress(); });
  }
  SharedJob(const SharedJob&) = delete;
  SharedJob& operator=(const SharedJob&) = delete;

 private:
  friend class JobSession;

  struct Listener {
    std::function<void(const PeerLost&)> lost{};
    std::function<ExchangeProgress()> progress{};
  };

  void notify(const PeerLost& loss) {
    const std::scoped_lock lock(mutex_);
    loss_ = loss;
    for (const auto& [number, listener] : listeners_)
      if (listener.lost) listener.lost(loss);
  }
  ExchangeProgress progress() {
    const std::scoped_lock lock(mutex_);
    ExchangeProgress all{ended_, {}};
    for (const auto& [number, listener] : listeners_) {
      if (!listener.progress) continue;
      const ExchangeProgress its = listener.progress();
      all.done += its.done;
      if (!all.waits_for) all.waits_for = its.waits_for;
    }
    return all;
  }

  StallLimits limits_;
  ClusterTimeouts timeouts_;
  std::mutex mutex_;
  std::map<std::uint64_t, Listener> listeners_;
  std::optional<PeerLost> loss_;
  std::uint64_t ended_ = 0;              // exchanges of models that are closed
  std::atomic<std::uint64_t> steps_{0};  // of all models
  std::uint64_t next_ = 0, open_ = 0;    // guarded by the slot's mutex
  Rendezvous rendezvous_;                // last: its control thread uses the above
};

/// Where the models of a process find the job that is open for their cluster.
struct JobSlot {
  std::mutex mutex;
  std::weak_ptr<SharedJob> job;

  /// A child of fork has none of its parent's jobs.
  static std::shared_ptr<JobSlot> of(const ResolvedCluster& where) {
    static std::mutex mutex;
    static std::map<std::string, std::shared_ptr<JobSlot>> slots;
    const std::string key =
        text({::getpid(), " ", where.rank ? text({*where.rank}) : "auto", " ", where.job_id, " ",
              where.chief ? to_string(*where.chief) : "", " ", where.description()});
    const std::scoped_lock lock(mutex);
    auto& slot = slots[key];
    if (!slot) slot = std::make_shared<JobSlot>();
    return slot;
  }
};

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
  template <class MakeOptions>
  JobSession(const ResolvedCluster& where, const StallLimits& limits, MakeOptions&& make_options)
      : slot_(JobSlot::of(where)) {
    const std::scoped_lock lock(slot_->mutex);
    job_ = slot_->job.lock();
    if (!job_) {
      job_ = std::make_shared<SharedJob>(make_options());
      slot_->job = job_;
    } else if (limits.stall != job_->limits_.stall || limits.idle != job_->limits_.idle ||
               where.timeouts != job_->timeouts_) {
      throw UsageError(
          "multi_worker_mirrored: another model of this process is open in the same job with other "
          "stall_limits or timeouts, and they are the job's; give all models the same");
    }
    ++job_->open_;
    number_ = job_->next_++;
  }
  JobSession(const JobSession&) = delete;
  JobSession& operator=(const JobSession&) = delete;
  ~JobSession() {
    forget();
    if (has_left_) return;
    const std::scoped_lock lock(slot_->mutex);
    --job_->open_;
    job_.reset();
  }

  Rendezvous& rendezvous() { return job_->rendezvous_; }
  /// 0 for the first model that the job has in this process; the same on all ranks.
  std::uint64_t number() const { return number_; }
  /// A name in the job's store that belongs to this model.
  std::string name(std::string_view what) const {
    return number_ == 0 ? std::string(what) : text({"model ", number_, "/", what});
  }

  /// As Rendezvous::note_progress. The job's step counts those of all models.
  void note_progress(std::uint64_t step, Phase phase, bool first_step) {
    const std::uint64_t more = step - std::exchange(step_, step);
    const std::uint64_t all = job_->steps_.fetch_add(more, std::memory_order_relaxed) + more;
    job_->rendezvous_.note_progress(all, phase, first_step);
  }
  /// As Rendezvous::on_loss, for this model.
  void on_loss(std::function<void(const PeerLost&)> callback) {
    const std::scoped_lock lock(job_->mutex_);
    if (callback && job_->loss_) callback(*job_->loss_);
    job_->listeners_[number_].lost = std::move(callback);
  }
  /// As Rendezvous::on_exchange, for this model.
  void on_exchange(std::function<ExchangeProgress()> progress) {
    const std::scoped_lock lock(job_->mutex_);
    auto& known = job_->listeners_[number_].progress;
    if (known) job_->ended_ += known().done;
    known = std::move(progress);
  }
  /// Removes the callbacks of this model; none runs when this returns.
  void forget() {
    on_exchange({});
    on_loss({});
  }

  /// Before the model's connections close: waits until the other ranks no longer need them. The
  /// last model leaves the job. As long as the job's leave timeout at most.
  void leave() noexcept {
    has_left_ = true;
    std::unique_lock lock(slot_->mutex);
    if (--job_->open_ == 0) {
      job_->rendezvous_.leave();
      closing_ = std::move(lock);  // opening the next job waits until this one has ended
      return;
    }
    lock.unlock();
    try {
      job_->rendezvous_.barrier(name("is closed"), job_->rendezvous_.timeouts().leave);
    } catch (const std::exception&) {  // the others are gone, or still busy with another model
    }
  }

 private:
  std::shared_ptr<JobSlot> slot_;
  std::unique_lock<std::mutex> closing_;  // outlives job_
  std::shared_ptr<SharedJob> job_;
  std::uint64_t number_ = 0, step_ = 0;
  bool has_left_ = false;
};

}  // namespace lockstep::detail
