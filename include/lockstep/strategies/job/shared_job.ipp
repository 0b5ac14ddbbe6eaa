#pragma once

#include "lockstep/strategies/job/shared_job.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

/// The state shared by the models of a process; it lives as long as one of them.
class SharedJob {
 public:
  explicit SharedJob(RendezvousOptions options)
      : limits_(options.stall_limits),
        timeouts_(options.cluster.timeouts),
        rendezvous_(std::move(options)) {
    rendezvous_.on_loss([this](const PeerLost& loss) { notify_listeners(loss); });
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

  void notify_listeners(const PeerLost& loss) {
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
      all.moved += its.moved;
      if (!all.waits_for) all.waits_for = its.waits_for;
    }
    return all;
  }

  StallLimits limits_;
  ClusterTimeouts timeouts_;
  std::mutex mutex_;
  std::map<std::uint64_t, Listener> listeners_;
  std::optional<PeerLost> loss_;
  std::uint64_t ended_ = 0;              // exchanges made by models that are closed
  std::atomic<std::uint64_t> steps_{0};  // of all models
  std::uint64_t next_ = 0, open_ = 0;    // guarded by the slot's mutex
  Rendezvous rendezvous_;                // last member: its control thread uses all others
};

/// The registry entry by which the models of a process find the job that is open for their cluster.
struct JobSlot {
  std::mutex mutex;
  std::weak_ptr<SharedJob> job;

  /// The slot of a cluster description. The key contains the process id, so that a forked child
  /// does not find its parent's jobs. One registry per process, as with log_state(): rename this
  /// function when the layout of a job changes.
  [[gnu::visibility("default")]] static std::shared_ptr<JobSlot> of(const ResolvedCluster& where) {
    static std::mutex mutex;
    static std::map<std::string, std::shared_ptr<JobSlot>> jobs;
    const std::string key =
        format_text("{} {} {} {} {}", ::getpid(), where.rank ? std::to_string(*where.rank) : "auto",
                    where.job_id, where.chief ? to_string(*where.chief) : "", where.description());
    const std::scoped_lock lock(mutex);
    // An elastic job has another description in each generation.
    std::erase_if(jobs, [](const auto& entry) {
      if (entry.second.use_count() > 1) return false;
      const std::scoped_lock last(entry.second->mutex);  // its last owner's writes come before
      return entry.second->job.expired();
    });
    auto& slot = jobs[key];
    if (!slot) slot = std::make_shared<JobSlot>();
    return slot;
  }
};

JobSession::JobSession(const ResolvedCluster& where, const StallLimits& limits,
                       const std::function<RendezvousOptions()>& make_options)
    : slot_(JobSlot::of(where)) {
  const std::scoped_lock lock(slot_->mutex);
  job_ = slot_->job.lock();
  if (!job_) {
    job_ = std::make_shared<SharedJob>(make_options());
    slot_->job = job_;
  } else if (limits.stall != job_->limits_.stall || limits.idle != job_->limits_.idle ||
             where.timeouts != job_->timeouts_) {
    throw UsageError(
        "multi_worker_mirrored: another open model of this process has other stall_limits or "
        "timeouts, which apply to the whole job; give all models the same");
  }
  ++job_->open_;
  number_ = job_->next_++;
}

JobSession::~JobSession() {
  unsubscribe();
  if (has_left_) return;
  const std::scoped_lock lock(slot_->mutex);
  --job_->open_;
  job_.reset();
}

Rendezvous& JobSession::rendezvous() { return job_->rendezvous_; }

std::string JobSession::name(std::string_view what) const {
  return number_ == 0 ? std::string(what) : format_text("model {}/{}", number_, what);
}

void JobSession::note_progress(std::uint64_t step, Phase phase, bool first_step) {
  const std::uint64_t more = step - std::exchange(step_, step);
  const std::uint64_t all = job_->steps_.fetch_add(more, std::memory_order_relaxed) + more;
  job_->rendezvous_.note_progress(all, phase, first_step);
}

void JobSession::on_loss(std::function<void(const PeerLost&)> callback) {
  const std::scoped_lock lock(job_->mutex_);
  if (callback && job_->loss_) callback(*job_->loss_);
  job_->listeners_[number_].lost = std::move(callback);
}

void JobSession::on_exchange(std::function<ExchangeProgress()> progress) {
  const std::scoped_lock lock(job_->mutex_);
  auto& known = job_->listeners_[number_].progress;
  if (known) job_->ended_ += known().done;
  known = std::move(progress);
}

void JobSession::unsubscribe() {
  on_exchange({});
  on_loss({});
}

void JobSession::leave() noexcept {
  has_left_ = true;
  std::unique_lock lock(slot_->mutex);
  if (--job_->open_ == 0) {
    job_->rendezvous_.leave();
    closing_ = std::move(lock);  // held until this job is destroyed: the next one opens after it
    return;
  }
  lock.unlock();
  try {
    job_->rendezvous_.barrier(name("is closed"), job_->rendezvous_.timeouts().leave);
  } catch (const std::exception&) {  // the peers are gone, or still busy with another model
  }
}

}  // namespace lockstep::detail
