/// \file
/// The threads of a process' replicas. Invariants: replica 0 runs in the calling thread, so that a
/// single replica needs no other; replica i runs in the same dedicated thread for every call; an
/// idle thread polls for a short time, unless cores are contended, and then sleeps.
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

#include "lockstep/core/config.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/process/contention.hpp"

namespace lockstep::detail {

/// \throws DeviceError: the thread of `replica` could not be started.
[[noreturn]] LOCKSTEP_COLD_DECL void throw_no_thread(std::size_t replica,
                                                     const std::system_error& e);

/// A fork-join pool with one thread per replica:
///
///     run(body)   generation_ + 1, wake ── body(0) ──────── wait until running_ == 0 ── return
///     thread i    sees the generation ──── body(i) ──────── running_ - 1, the last one wakes run
class ReplicaThreads {
 public:
  /// `spins` is the number of polls before a thread sleeps.
  /// \throws DeviceError if a thread cannot be started, UsageError if LOCKSTEP_WAIT_POLICY is
  /// invalid.
  LOCKSTEP_COLD_DECL explicit ReplicaThreads(std::size_t count, int spins = 0);
  ~ReplicaThreads() { stop(); }
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  /// Runs body(i) for all replicas i in parallel; returns when all have. `errors()` then has
  /// the exceptions that bodies threw. Does not allocate. \throws DeviceError if a body has ended
  /// its thread in an earlier run, by pthread_exit.
  LOCKSTEP_DECL void run(FunctionRef<void(std::size_t)> body);

  /// The exceptions of the last run, by replica; null where there was none.
  const std::vector<std::exception_ptr>& errors() const { return errors_; }

 private:
  /// Runs the body of one replica and stores its exception.
  LOCKSTEP_DECL void run_body(std::size_t index);
  /// Counts the body of a thread as finished.
  LOCKSTEP_DECL void finish_body();
  LOCKSTEP_DECL void wait_for_bodies();
  /// The loop of a thread.
  LOCKSTEP_DECL void serve(std::size_t index);
  LOCKSTEP_COLD_DECL void stop();

  int spins_;
  Contention& contention_ = Contention::of_process();
  std::mutex mutex_;
  std::condition_variable start_, done_;
  FunctionRef<void(std::size_t)> body_;
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<std::size_t> running_{0};
  bool stopping_ = false;
  std::atomic<bool> has_lost_thread_{false};
  std::vector<std::exception_ptr> errors_;
  std::vector<std::thread> threads_;  // threads_[i] is that of replica i + 1
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/strategies/replica_threads.ipp"
#endif
