#pragma once

#include "lockstep/devices/cpu/team.hpp"

#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/process/contention.hpp"

namespace lockstep::detail {

TeamSettings::TeamSettings(int threads)
    : threads_(omp_get_max_threads()),
      dynamic_(omp_get_dynamic()),
      levels_(omp_get_max_active_levels()) {
  omp_set_num_threads(threads);
  if (dynamic_ != 0) omp_set_dynamic(0);
  if (levels_ < 1) omp_set_max_active_levels(1);
}
TeamSettings::~TeamSettings() {
  omp_set_num_threads(threads_);
  if (dynamic_ != 0) omp_set_dynamic(dynamic_);
  if (levels_ < 1) omp_set_max_active_levels(levels_);
}

/// Registers a fork handler that marks the pool as lost in a child forked without exec. Any second
/// thread in the parent counts, since the program's own parallel regions may have formed the pool.
class ForkWatch {
 public:
  ForkWatch() {
    pthread_atfork([] { had_threads() = count_threads() > 1; }, nullptr,
                   [] {
                     TeamCache& cache = team_cache();
                     cache.lost_pool = cache.lost_pool || cache.granted > 1 || had_threads();
                   });
  }

 private:
  static bool& had_threads() {
    static bool had = false;
    return had;
  }
  /// Threads of the process: the links of /proc/self/task, without "." and "..".
  static std::size_t count_threads() {
    struct stat tasks{};
    return ::stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > 2 ? tasks.st_nlink - 2 : 1;
  }
};
inline const ForkWatch fork_watch;

// Returns the minimum if the system does not report its stack, so that such a thread is accepted.
std::size_t stack_left() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return min_stack_bytes;
  void* lowest = nullptr;
  std::size_t size = 0;
  pthread_attr_getstack(&attributes, &lowest, &size);
  pthread_attr_destroy(&attributes);
  const auto* const here = static_cast<const char*>(__builtin_frame_address(0));
  return static_cast<std::size_t>(here - static_cast<const char*>(lowest));
}

void check_stack() {
  if (const std::size_t left = stack_left(); left < min_stack_bytes)
    throw UsageError(
        "cpu: the calling thread has {} KiB of stack left; it needs {}; create it with a larger "
        "stack (pthread_attr_setstacksize)",
        left / 1024, min_stack_bytes / 1024);
  team_cache().stack_checked = true;
}

void check_thread_creation(std::size_t count) {
  std::vector<pthread_t> threads;
  threads.reserve(count);
  std::mutex all_created;  // held until the last thread exists, so that all exist at the same time
  std::unique_lock lock(all_created);
  int error = 0;
  while (error == 0 && threads.size() < count) {
    pthread_t thread{};
    error = pthread_create(
        &thread, nullptr,
        [](void* mutex) -> void* {
          const std::scoped_lock wait(*static_cast<std::mutex*>(mutex));
          return nullptr;
        },
        &all_created);
    if (error == 0) threads.push_back(thread);
  }
  lock.unlock();
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  if (error != 0)
    throw DeviceError(
        "cpu: cannot create thread {} of {}: {}; reduce Cpu::threads, or raise the limit on "
        "processes (ulimit -u, the container's pids.max) or on memory (ulimit -v)",
        threads.size() + 2, count + 1, std::generic_category().message(error));
}

// The order of the checks matters: each excludes a way in which libgomp would end the process or
// wait for ever in the region below.
int team_of(int threads) {
  TeamCache& cache = team_cache();
  if (!cache.stack_checked) check_stack();
  if (threads == 1 || omp_in_parallel() != 0 || cache.lost_pool) return 1;
  // A smaller request is granted from a team that was formed before.
  if (threads <= cache.requested) return std::min(threads, cache.granted);
  const int wanted = std::min(threads, omp_get_thread_limit());
  check_thread_creation(static_cast<std::size_t>(wanted - 1));
  struct Count {
    int threads = 1;
    std::mutex mutex{};
    std::size_t stack = min_stack_bytes;
    Contention& contention = Contention::of_process();
  } count;
  const TeamSettings settings(wanted);
  // Counts the team from within: only a running region knows how many threads the runtime granted,
  // and how large their stacks are.
  GOMP_parallel(
      [](void* data) {
        Count& c = *static_cast<Count*>(data);
        const std::scoped_lock lock(c.mutex);
        c.threads = omp_get_num_threads();
        if (omp_get_thread_num() != 0) c.stack = std::min(c.stack, stack_left());
        c.contention.watch();
      },
      &count, static_cast<unsigned>(wanted), 0);
  if (count.stack < min_stack_bytes)
    throw UsageError(
        "cpu: OpenMP's threads have {} KiB of stack left; they need {}; raise OMP_STACKSIZE or "
        "unset it",
        count.stack / 1024, min_stack_bytes / 1024);
  cache.requested = threads;
  cache.granted = count.threads;
  return count.threads;
}

// Several causes may hold; reports the one to fix first.
std::string team_shortfall(int threads) {
  if (omp_in_parallel() != 0)
    return "inside an OpenMP parallel region each thread computes alone; create and use the model "
           "outside of the region, or set Cpu::threads to 1";
  if (team_cache().lost_pool)
    return "a process forked from one with threads has lost OpenMP's pool; fork before the first "
           "thread starts, use exec, create and use the model in a new std::thread, or set "
           "Cpu::threads to 1";
  if (omp_get_thread_limit() < threads)
    return format_text("OMP_THREAD_LIMIT is {}; unset it, or set Cpu::threads to at most that",
                       omp_get_thread_limit());
  return "the OpenMP runtime grants no more; set Cpu::threads to that number";
}

}  // namespace lockstep::detail
