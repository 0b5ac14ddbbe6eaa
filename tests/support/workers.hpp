/// \file
/// A job of several worker processes, emulated by threads: each "process" has its own model and is
/// connected to the others only by its collective. For tests of the contract between a model and a
/// multi-process strategy; the real strategies are tested with real processes.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/collectives/hierarchical_group.hpp"
#include "lockstep/strategies/local_replicas.hpp"

namespace testing {

/// The collectives between processes with the given numbers of replicas.
struct Job {
  explicit Job(std::vector<std::size_t> replicas_, std::size_t virtual_shards_ = 0)
      : replicas(std::move(replicas_)),
        virtual_shards(virtual_shards_),
        layers(options(replicas.size())),
        gradients(options(replicas.size())) {}
  lockstep::ThreadGroup::Options options(std::size_t size) const {
    return {.size = size,
            .timeout = std::chrono::seconds(60),
            .order = virtual_shards > 0 ? lockstep::SumOrder::tree : lockstep::SumOrder::ranks};
  }
  std::vector<std::size_t> replicas;
  std::size_t virtual_shards;
  lockstep::ThreadGroup layers, gradients;
};

/// The strategy of one emulated process.
template <lockstep::Device D>
struct Worker {
  using device = D;
  static constexpr std::string_view name = "worker";
  std::shared_ptr<Job> job;
  std::size_t process = 0;
  D on{};

  class Session {
   public:
    explicit Session(const Worker& w) : state_(std::make_unique<State>(w)) {}
    template <class Body>
    void each(Body&& body) {
      state_->local.each(std::forward<Body>(body));
    }
    std::size_t local_replicas() const { return state_->local.count(); }
    std::size_t replicas() const {
      const auto& r = state_->job->replicas;
      return std::accumulate(r.begin(), r.end(), std::size_t{0});
    }
    std::size_t first_replica() const { return state_->first; }
    std::size_t virtual_shards() const { return state_->job->virtual_shards; }
    std::size_t workers() const { return state_->job->replicas.size(); }
    std::size_t rank() const { return state_->process; }
    bool is_chief() const { return rank() == 0; }
    void agree(std::string_view, const lockstep::Signature&) {}
    void note(std::uint64_t, lockstep::Phase) {}
    void end_epoch(int) {}
    void fail(const std::string&) {}

   private:
    using Group = lockstep::HierarchicalGroup<lockstep::ThreadGroup::Member>;
    struct State {
      explicit State(const Worker& w)
          : job(w.job),
            process(w.process),
            across_layers(job->layers, w.process),
            across_gradients(job->gradients, w.process),
            first(std::accumulate(job->replicas.begin(),
                                  job->replicas.begin() + static_cast<std::ptrdiff_t>(w.process),
                                  std::size_t{0})),
            layers(across_layers, job->replicas, job->options(job->replicas[w.process])),
            gradients(across_gradients, job->replicas, job->options(job->replicas[w.process])),
            local(job->replicas[w.process], first, layers, gradients, {},
                  [&](std::size_t i) { return w.on.open(job->replicas[w.process], i); }) {}
      std::shared_ptr<Job> job;
      std::size_t process;
      lockstep::ThreadGroup::Member across_layers, across_gradients;
      std::size_t first;
      Group layers, gradients;
      lockstep::detail::LocalReplicas<D, Group> local;
    };
    std::unique_ptr<State> state_;
  };
  Session open() const { return Session(*this); }
};

/// Runs body(worker) in one thread per process; rethrows the first error after all have ended.
template <lockstep::Device D, class Body>
void run_workers(std::vector<std::size_t> replicas, std::size_t virtual_shards, const Body& body,
                 D on = {}) {
  const auto job = std::make_shared<Job>(std::move(replicas), virtual_shards);
  std::vector<std::exception_ptr> errors(job->replicas.size());
  std::vector<std::thread> threads;
  for (std::size_t p = 0; p < errors.size(); ++p)
    threads.emplace_back([&, p] {
      try {
        body(Worker<D>{job, p, on});
      } catch (...) {
        errors[p] = std::current_exception();
        job->layers.abort();
        job->gradients.abort();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace testing
