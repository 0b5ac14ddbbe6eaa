/// \file
/// The threads of a process' replicas. Invariants: replica 0 runs in the thread that calls, so that
/// a single replica needs no other; replica i runs in a thread of its own, the same from the first
/// call to the last; a thread without work sleeps, after a short look around.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/collectives/spin.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"

namespace lockstep::detail {

[[noreturn, gnu::cold]] inline void refuse_thread(std::size_t replica, const std::system_error& e) {
  throw DeviceError({"mirrored: no thread for replica ", replica, ": ", e.what(),
                     "; use fewer replicas, or raise the limit of processes (ulimit -u) or of "
                     "memory (ulimit -v)"});
}

class ReplicaThreads {
 public:
  /// `spins`: how often a thread looks for its partners before it sleeps.
  /// \throws DeviceError if the system gives no more threads.
  explicit ReplicaThreads(std::size_t count, int spins = 0) : spins_(spins), errors_(count) {
    threads_.reserve(count);
    try {
      for (std::size_t i = 1; i < count; ++i) threads_.emplace_back([this, i] { serve(i); });
    } catch (const std::system_error& e) {
      end();
      refuse_thread(threads_.size() + 1, e);
    }
  }
  ~ReplicaThreads() { end(); }
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  /// body(i) for each replica i, all at once; returns when all have. What a body throws lies in
  /// `errors()` then. Takes no memory.
  void run(FunctionRef<void(std::size_t)> body) {
    body_ = body;
    running_.store(threads_.size(), std::memory_order_relaxed);
    {
      const std::scoped_lock lock(mutex_);
      round_.fetch_add(1, std::memory_order_release);
    }
    start_.notify_all();
    work(0);
    const auto all_done = [&] { return running_.load(std::memory_order_acquire) == 0; };
    if (spin_until(spins_, all_done)) return;
    std::unique_lock lock(mutex_);
    done_.wait(lock, all_done);
  }

  /// Of the last run, by replica; null where there was none.
  const std::vector<std::exception_ptr>& errors() const { return errors_; }

 private:
  void work(std::size_t index) {
    std::exception_ptr error;
    try {
      body_(index);
    } catch (...) {
      error = std::current_exception();
    }
    errors_[index] = std::move(error);
  }

  void serve(std::size_t index) {
    std::uint64_t seen = 0;
    while (true) {
      const auto called = [&] { return round_.load(std::memory_order_acquire) != seen; };
      if (!spin_until(spins_, called)) {
        std::unique_lock lock(mutex_);
        start_.wait(lock, [&] { return ends_ || called(); });
        if (ends_) return;
      }
      ++seen;
      work(index);
      if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        {
          const std::scoped_lock lock(mutex_);
        }  // the caller is before its look, or asleep
        done_.notify_one();
      }
    }
  }

  void end() {
    {
      const std::scoped_lock lock(mutex_);
      ends_ = true;
    }
    start_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  int spins_;
  std::mutex mutex_;
  std::condition_variable start_, done_;
  FunctionRef<void(std::size_t)> body_;
  std::atomic<std::uint64_t> round_{0};
  std::atomic<std::size_t> running_{0};
  bool ends_ = false;
  std::vector<std::exception_ptr> errors_;
  std::vector<std::thread> threads_;  // of replicas 1, 2, ...
};

}  // namespace lockstep::detail
