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

#include "lockstep/core/config.hpp"
#include "lockstep/core/function_ref.hpp"

namespace lockstep::detail {

[[noreturn]] LOCKSTEP_COLD_DECL void throw_no_thread(std::size_t replica,
                                                     const std::system_error& e);

class ReplicaThreads {
 public:
  /// `spins`: how often a thread looks for its partners before it sleeps.
  /// \throws DeviceError if the system gives no more threads.
  LOCKSTEP_COLD_DECL explicit ReplicaThreads(std::size_t count, int spins = 0);
  ~ReplicaThreads() { stop(); }
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  /// body(i) for each replica i, all at once; returns when all have. What a body throws lies in
  /// `errors()` then. Takes no memory.
  LOCKSTEP_DECL void run(FunctionRef<void(std::size_t)> body);

  /// Of the last run, by replica; null where there was none.
  const std::vector<std::exception_ptr>& errors() const { return errors_; }

 private:
  LOCKSTEP_DECL void run_body(std::size_t index);
  LOCKSTEP_DECL void serve(std::size_t index);
  LOCKSTEP_COLD_DECL void stop();

  int spins_;
  std::mutex mutex_;
  std::condition_variable start_, done_;
  FunctionRef<void(std::size_t)> body_;
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<std::size_t> running_{0};
  bool stopping_ = false;
  std::vector<std::exception_ptr> errors_;
  std::vector<std::thread> threads_;  // of replicas 1, 2, ...
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/strategies/replica_threads.ipp"
#endif
