/// \file
/// The threads of a process' replicas. Invariants: replica i always runs in the i-th thread, from
/// the first call to the last; an idle thread sleeps.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

[[noreturn, gnu::cold]] inline void refuse_thread(std::size_t replica, const std::system_error& e) {
  throw DeviceError({"mirrored: no thread for replica ", replica, ": ", e.what(),
                     "; use fewer replicas, or raise the limit of processes (ulimit -u)"});
}

class ReplicaThreads {
 public:
  /// \throws DeviceError if the system gives no more threads.
  explicit ReplicaThreads(std::size_t count) : errors_(count) {
    threads_.reserve(count);
    try {
      for (std::size_t i = 0; i < count; ++i) threads_.emplace_back([this, i] { serve(i); });
    } catch (const std::system_error& e) {
      end();
      refuse_thread(threads_.size(), e);
    }
  }
  ~ReplicaThreads() { end(); }

  /// body(i) in each thread i; returns when all have. What a body throws lies in `errors()` then.
  template <class Body>
  void run(const Body& body) {
    run_erased([](const void* b, std::size_t i) { (*static_cast<const Body*>(b))(i); }, &body);
  }

  /// Of the last run, by thread; null where there was none.
  const std::vector<std::exception_ptr>& errors() const { return errors_; }

 private:
  using Call = void (*)(const void*, std::size_t);

  void run_erased(Call call, const void* body) {
    std::unique_lock lock(mutex_);
    call_ = call;
    body_ = body;
    running_ = threads_.size();
    ++round_;
    start_.notify_all();
    done_.wait(lock, [&] { return running_ == 0; });
  }

  void serve(std::size_t index) {
    std::uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      start_.wait(lock, [&] { return ends_ || round_ != seen; });
      if (ends_) return;
      seen = round_;
      const Call call = call_;
      const void* const body = body_;
      lock.unlock();
      std::exception_ptr error;
      try {
        call(body, index);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      errors_[index] = std::move(error);
      if (--running_ == 0) done_.notify_one();
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

  std::mutex mutex_;
  std::condition_variable start_, done_;
  Call call_ = nullptr;
  const void* body_ = nullptr;
  std::uint64_t round_ = 0;
  std::size_t running_ = 0;
  bool ends_ = false;
  std::vector<std::exception_ptr> errors_;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::detail
