/// \file
/// An elastic job of several worker processes, emulated by threads: workers fail at chosen exchanges,
/// and the survivors, with workers that wait to join, form the next generation. For tests of what
/// training does about a loss; the agreement on members is tested with real processes.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/collectives/hierarchical_group.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/strategies/local_replicas.hpp"
#include "support/workers.hpp"

namespace testing {

/// Ends a worker, as a signal would.
struct Killed {};

/// A failure of a worker at its n-th exchange.
struct Fault {
  enum class Kind {
    dies_before,  ///< the exchange fails everywhere
    dies_after,   ///< it completes everywhere
    fails_after   ///< it completes in all other workers; this one lives on
  };
  std::size_t worker, exchange;
  Kind kind;
};

/// The workers, by number, that are parameter servers, and the number of a chief that computes
/// nothing, if there is one.
struct Servers {
  std::set<std::size_t> numbers{};
  std::optional<std::size_t> chief{};

  int role_of(std::size_t worker) const {
    return numbers.contains(worker) ? 1 : worker == chief ? 2 : 0;
  }
};

/// The emulated agreement. A worker is a number that is never used again.
class ElasticJob {
 public:
  ElasticJob(std::size_t workers, std::size_t virtual_shards, std::vector<Fault> faults = {},
             std::size_t replicas = 1, std::size_t min_workers = 1, Servers servers = {})
      : servers_(std::move(servers)),
        first_(workers),
        min_workers_(min_workers),
        shards_(virtual_shards),
        replicas_(replicas),
        faults_(std::move(faults)),
        exchanges_(64) {}

  struct View {
    std::shared_ptr<Job> job;
    std::uint64_t number = 0;
    std::size_t rank = 0;
    std::vector<bool> is_new;
    std::vector<std::size_t> members;  ///< by rank
  };

  View join(std::size_t worker) {
    std::unique_lock lock(mutex_);
    (worker < first_ ? founders_ : newcomers_).push_back(worker);
    if (founders_.size() == first_ && !job_) {
      std::sort(founders_.begin(), founders_.end());
      form(founders_, {});
    }
    changed_.notify_all();
    return wait(lock, worker, 0);
  }
  /// Waits until the workers have made this number of exchanges altogether. \throws Killed if the job ends
  /// before.
  void wait_for(std::size_t exchanges) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(30),
                      [&] { return all_ >= exchanges || has_ended(); });
    if (has_ended()) throw Killed();
  }
  /// Waits until a worker waits to join.
  void wait_for_newcomer() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(30), [&] { return !newcomers_.empty(); });
  }
  /// The next generation after number `last`.
  View next(std::size_t worker, std::uint64_t last) {
    std::unique_lock lock(mutex_);
    if (number_ == last) {
      arrived_.insert(worker);
      abort();
      form_if_complete();
    }
    return wait(lock, worker, last + 1);
  }
  /// The worker's program has ended, by a fault or not.
  void leave(std::size_t worker) {
    const std::scoped_lock lock(mutex_);
    std::erase(members_, worker);
    std::erase(newcomers_, worker);
    arrived_.erase(worker);
    abort();
    form_if_complete();
  }
  bool has_newcomers() {
    const std::scoped_lock lock(mutex_);
    return !newcomers_.empty();
  }
  bool must_reform(std::uint64_t number) {
    const std::scoped_lock lock(mutex_);
    return number != number_ || !arrived_.empty();
  }
  void reject(const std::vector<bool>& is_new) {
    const std::scoped_lock lock(mutex_);
    for (std::size_t r = 0; r < is_new.size(); ++r)
      if (is_new[r]) rejections_ += 1;
  }
  std::uint64_t generations() const { return number_; }
  std::size_t rejections() const { return rejections_; }

  /// Called before and after each exchange of a worker.
  void before(std::size_t worker) {
    const std::scoped_lock lock(mutex_);
    ++exchanges_[worker];
    if (++all_ % 8 == 0) changed_.notify_all();
    if (due(worker, Fault::Kind::dies_before)) throw Killed();
  }
  void after(std::size_t worker) {
    const std::scoped_lock lock(mutex_);
    if (due(worker, Fault::Kind::dies_after)) throw Killed();
    if (due(worker, Fault::Kind::fails_after))
      throw lockstep::CollectiveAborted("the connection failed");
  }
  std::size_t exchanges(std::size_t worker) const { return exchanges_[worker]; }
  const Servers& servers() const { return servers_; }
  std::size_t replicas() const { return replicas_; }
  std::size_t shards() const { return shards_; }

 private:
  bool due(std::size_t worker, Fault::Kind kind) const {
    return std::any_of(faults_.begin(), faults_.end(), [&](const Fault& f) {
      return f.worker == worker && f.exchange == exchanges_[worker] && f.kind == kind;
    });
  }
  void abort() {
    if (!job_) return;
    job_->layers.abort();
    job_->gradients.abort();
  }
  bool has_ended() const { return job_ && members_.empty(); }
  void form_if_complete() {
    if (has_ended()) changed_.notify_all();
    if (arrived_.empty() || arrived_.size() < members_.size()) return;
    auto all = members_;
    const auto is_worker = [&](std::size_t worker) { return servers_.role_of(worker) == 0; };
    if (static_cast<std::size_t>(std::count_if(all.begin(), all.end(), is_worker) +
                                 std::count_if(newcomers_.begin(), newcomers_.end(), is_worker)) <
        min_workers_) {
      is_over_ = true;
      changed_.notify_all();
      return;
    }
    const auto added = std::exchange(newcomers_, {});
    all.insert(all.end(), added.begin(), added.end());
    ++number_;
    arrived_.clear();
    form(all, added);
  }
  void form(std::vector<std::size_t> members, const std::vector<std::size_t>& added) {
    // As detail::order_by_role.
    const int first = number_ == 0 ? 2 : servers_.role_of(members.front());
    const auto key = [&](std::size_t worker) {
      const int role = servers_.role_of(worker);
      return std::pair(role != first, role);
    };
    if (!servers_.numbers.empty())
      std::stable_sort(members.begin(), members.end(),
                       [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
    members_ = ranks_ = members;
    is_new_.assign(members.size(), number_ == 0);
    for (std::size_t r = 0; r < members.size(); ++r)
      if (std::count(added.begin(), added.end(), members[r]) > 0) is_new_[r] = true;
    job_ = std::make_shared<Job>(std::vector<std::size_t>(members.size(), replicas_), shards_);
    changed_.notify_all();
  }
  View wait(std::unique_lock<std::mutex>& lock, std::size_t worker, std::uint64_t least) {
    const auto rank = [&] { return std::find(ranks_.begin(), ranks_.end(), worker); };
    if (!changed_.wait_for(lock, std::chrono::seconds(30), [&] {
          return (job_ && number_ >= least && rank() != ranks_.end()) || has_ended() || is_over_;
        }))
      throw std::logic_error("no generation was formed");
    if (is_over_) throw lockstep::PeerLost(0, "thread", "is lost: too few are left", std::nullopt);
    if (has_ended()) throw Killed();  // before it has admitted this worker
    return {job_, number_, static_cast<std::size_t>(rank() - ranks_.begin()), is_new_, ranks_};
  }

  const Servers servers_;
  const std::size_t first_, min_workers_, shards_, replicas_;
  const std::vector<Fault> faults_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> founders_, newcomers_, members_, ranks_;
  std::vector<bool> is_new_;
  std::set<std::size_t> arrived_;
  std::shared_ptr<Job> job_;
  std::uint64_t number_ = 0;
  bool is_over_ = false;
  std::size_t rejections_ = 0, all_ = 0;
  std::vector<std::size_t> exchanges_;
};

/// The member of a group of workers, with the worker's faults.
class FaultyMember {
 public:
  FaultyMember(lockstep::ThreadGroup& group, std::size_t rank, ElasticJob& job, std::size_t worker)
      : member_(group, rank), group_(&group), job_(&job), worker_(worker) {}

  std::size_t rank() const { return member_.rank(); }
  std::size_t size() const { return member_.size(); }
  void abort() { group_->abort(); }
  template <class T>
  void all_reduce(T* p, std::size_t n) {
    exchange([&] { member_.all_reduce(p, n); });
  }
  template <class T>
  void all_reduce(T* p, std::size_t n, double* sums, std::size_t m) {
    exchange([&] { member_.all_reduce(p, n, sums, m); });
  }
  template <class T>
  void broadcast(T* p, std::size_t n, std::size_t root) {
    exchange([&] { member_.broadcast(p, n, root); });
  }
  template <class T>
  void all_gather(const T* p, std::size_t n, T* out) {
    exchange([&] { member_.all_gather(p, n, out); });
  }
  template <class T>
  void reduce_scatter(T* p, std::span<const lockstep::Slice> ranges, lockstep::Slice from) {
    or_scribble([&] { member_.reduce_scatter(p, ranges, from); },
                [&] { scribble(p, ranges[rank()]); });
  }
  template <class T>
  void reduce_scatter(T* p, std::span<const lockstep::Slice> ranges) {
    reduce_scatter(p, ranges, {0, size()});
  }
  template <class T>
  void all_gather(T* p, std::span<const lockstep::Slice> ranges) {
    or_scribble([&] { member_.all_gather(p, ranges); },
                [&] {
                  for (const auto& range : ranges)
                    if (&range != &ranges[rank()]) scribble(p, range);
                });
  }
  void barrier() {
    exchange([&] { member_.barrier(); });
  }

 private:
  /// Results of an exchange that has failed are undefined.
  template <class T>
  static void scribble(T* p, const lockstep::Slice& range) {
    for (std::size_t i = 0; i < range.count; ++i) p[range.first + i] = static_cast<T>(77);
  }
  template <class F, class Scribble>
  void or_scribble(const F& f, const Scribble& scribble_all) {
    try {
      exchange(f);
    } catch (...) {
      scribble_all();
      throw;
    }
  }
  template <class F>
  void exchange(const F& f) {
    job_->before(worker_);
    f();
    job_->after(worker_);
  }
  lockstep::ThreadGroup::Member member_;
  lockstep::ThreadGroup* group_;
  ElasticJob* job_;
  std::size_t worker_;
};

/// The strategy of one emulated process of an elastic job.
template <lockstep::Device D>
struct ElasticWorker {
  using device = D;
  static constexpr std::string_view name = "elastic_worker";
  std::shared_ptr<ElasticJob> job;
  std::size_t worker = 0;
  D on{};
  bool fails_alone = false;

  class Session {
   public:
    static constexpr bool can_reform = true;
    explicit Session(const ElasticWorker& w) : options_(w), view_(w.job->join(w.worker)) { form(); }
    template <class Body>
    void each(Body&& body) {
      exchange([&] { state_->local.each(std::forward<Body>(body)); });
    }
    std::size_t local_replicas() const { return state_->local.count(); }
    std::size_t replicas() const { return workers() * local_replicas(); }
    std::size_t first_replica() const { return rank() * local_replicas(); }
    std::size_t virtual_shards() const { return options_.job->shards(); }
    std::size_t workers() const { return view_.job->replicas.size(); }
    std::size_t rank() const { return view_.rank; }
    bool is_chief() const { return rank() == 0; }
    void agree(std::string_view, const lockstep::Signature&) {
      exchange([&] { state_->across_layers.barrier(); });
    }
    void note(std::uint64_t, lockstep::Phase) {}
    void end_epoch(int) {}
    void fail(const std::string&) {}

    bool is_elastic() const { return true; }
    bool has_newcomers() const { return options_.job->has_newcomers(); }
    bool must_reform() const { return options_.job->must_reform(view_.number); }
    void reform(const std::string&, const std::stop_token&) {
      state_.reset();
      view_ = options_.job->next(options_.worker, view_.number);
    }
    void form() { state_ = std::make_unique<State>(options_, view_); }
    void form_alone(std::exception_ptr error) {
      if (options_.fails_alone) throw std::bad_alloc();
      view_.job = std::make_shared<Job>(std::vector<std::size_t>{options_.job->replicas()},
                                        options_.job->shards());
      view_.rank = 0;
      view_.is_new = {false};
      form();
      error_ = std::move(error);
    }
    void end() { has_ended_ = true; }
    bool has_new_members() const {
      return view_.number > 0 && std::count(view_.is_new.begin(), view_.is_new.end(), true) > 0;
    }
    bool is_new_member() const { return view_.number > 0 && view_.is_new[view_.rank]; }
    std::uint64_t generation() const { return view_.number; }
    void reject_newcomers() { options_.job->reject(view_.is_new); }
    std::string change() const { return "generation " + std::to_string(view_.number); }
    const ElasticJob::View& view() const { return view_; }

   private:
    template <class F>
    void exchange(const F& f) {
      if (has_ended_) std::rethrow_exception(error_);
      try {
        f();
      } catch (const lockstep::CollectiveError& e) {
        throw lockstep::PeerLost(0, "thread", e.what(), std::nullopt);
      }
    }
    using Group = lockstep::HierarchicalGroup<FaultyMember>;
    struct State {
      State(const ElasticWorker& w, const ElasticJob::View& view)
          : job(view.job),
            across_layers(job->layers, view.rank, *w.job, w.worker),
            across_gradients(job->gradients, view.rank, *w.job, w.worker),
            layers(across_layers, job->replicas, job->options(job->replicas[view.rank])),
            gradients(across_gradients, job->replicas, job->options(job->replicas[view.rank])),
            local(job->replicas[view.rank], view.rank * job->replicas[view.rank], layers, gradients,
                  {.spins = 0, .overlap = false},
                  [&](std::size_t i) { return w.on.open(job->replicas[view.rank], i); }) {}
      std::shared_ptr<Job> job;
      FaultyMember across_layers, across_gradients;
      Group layers, gradients;
      lockstep::detail::LocalReplicas<D, Group> local;
    };
    ElasticWorker options_;
    ElasticJob::View view_;
    std::unique_ptr<State> state_;
    std::exception_ptr error_;
    bool has_ended_ = false;
  };
  Session open() const { return Session(*this); }
};

/// Runs body(worker) in one thread per worker, also of those that join later; rethrows the first
/// error except the end by a fault. \returns which workers reached their end.
template <lockstep::Device D, class Body>
std::vector<bool> run_elastic(const std::shared_ptr<ElasticJob>& job, std::size_t workers,
                              const Body& body, D on = {}) {
  std::vector<std::exception_ptr> errors(workers);
  std::vector<char> have_ended(workers);
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < workers; ++w)
    threads.emplace_back([&, w] {
      try {
        body(ElasticWorker<D>{job, w, on});
        have_ended[w] = 1;
      } catch (const Killed&) {
      } catch (...) {
        errors[w] = std::current_exception();
      }
      job->leave(w);
    });
  for (std::thread& t : threads) t.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  return {have_ended.begin(), have_ended.end()};
}

}  // namespace testing
