#pragma once

#include "lockstep/strategies/replica_threads.hpp"

#include <cxxabi.h>

#include "lockstep/collectives/algorithms/spin.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/process/contention.hpp"
#include "lockstep/core/process/threads.hpp"

namespace lockstep::detail {

void throw_no_thread(std::size_t replica, const std::system_error& e) {
  throw DeviceError(
      "mirrored: cannot start a thread for replica {}: {}; use fewer replicas, or raise the limit "
      "of processes (ulimit -u) or of memory (ulimit -v)",
      replica, e.what());
}

ReplicaThreads::ReplicaThreads(std::size_t count, int spins) : spins_(spins), errors_(count) {
  threads_.reserve(count);
  try {
    for (std::size_t i = 1; i < count; ++i)
      threads_.push_back(start_computing_thread([this, i] { serve(i); }));
  } catch (const std::system_error& e) {
    stop();
    throw_no_thread(threads_.size() + 1, e);
  }
}

void ReplicaThreads::run(FunctionRef<void(std::size_t)> body) {
  if (has_lost_thread_)
    throw DeviceError(
        "mirrored: the thread of a replica was ended by pthread_exit; create the model again");
  contention_.watch();
  contention_.sample();
  body_ = body;
  running_.store(threads_.size(), std::memory_order_relaxed);
  {
    const std::scoped_lock lock(mutex_);
    generation_.fetch_add(1, std::memory_order_release);
  }
  start_.notify_all();
  struct Wait {  // also if pthread_exit ends the calling thread: the bodies use its stack
    ReplicaThreads& threads;
    ~Wait() { threads.wait_for_bodies(); }
  } wait{*this};
  run_body(0);
}

void ReplicaThreads::wait_for_bodies() {
  const auto all_done = [&] { return running_.load(std::memory_order_acquire) == 0; };
  if (spin_until(spins_, all_done)) return;
  std::unique_lock lock(mutex_);
  done_.wait(lock, all_done);
}

void ReplicaThreads::run_body(std::size_t index) {
  std::exception_ptr error;
  try {
    body_(index);
  } catch (const abi::__forced_unwind&) {
    errors_[index] = current_error();
    if (index > 0) {
      has_lost_thread_ = true;
      finish_body();
    }
    throw;
  } catch (...) {
    error = std::current_exception();
  }
  errors_[index] = std::move(error);
}

void ReplicaThreads::serve(std::size_t index) {
  contention_.watch();
  std::uint64_t seen = 0;
  while (true) {
    const auto called = [&] { return generation_.load(std::memory_order_acquire) != seen; };
    if (!spin_until(spins_, called)) {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stopping_ || called(); });
      if (stopping_) return;
    }
    ++seen;
    run_body(index);
    finish_body();
  }
}

void ReplicaThreads::finish_body() {
  if (running_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  {
    const std::scoped_lock lock(mutex_);
  }  // the lock ensures that run() has not checked running_ yet, or is asleep: no lost wakeup
  done_.notify_one();
}

void ReplicaThreads::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  start_.notify_all();
  for (std::thread& t : threads_) t.join();
}

}  // namespace lockstep::detail
