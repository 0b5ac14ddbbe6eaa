/// \file
/// The team of OpenMP threads that a thread gets. OpenMP may give fewer threads than a parallel
/// region asks for, without an error; oneDNN then computes a part of the result or waits for ever.
/// Invariant: a team's size is counted before anything is planned for it, and no setting that could
/// change it is left to the program while a ThreadScope lives (docs/architecture.md, "Threads of
/// the Cpu").
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/core/config.hpp"

#if __has_include(<omp.h>)
#include <omp.h>
#else
extern "C" {
void omp_set_num_threads(int) noexcept;
int omp_get_max_threads() noexcept;
int omp_get_num_threads() noexcept;
int omp_get_thread_num() noexcept;
int omp_in_parallel() noexcept;
void omp_set_dynamic(int) noexcept;
int omp_get_dynamic() noexcept;
void omp_set_max_active_levels(int) noexcept;
int omp_get_max_active_levels() noexcept;
int omp_get_thread_limit() noexcept;
enum omp_proc_bind_t { omp_proc_bind_false = 0, omp_proc_bind_master = 2 };
omp_proc_bind_t omp_get_proc_bind() noexcept;
}
#endif

/// What `#pragma omp parallel` becomes in g++: runs f(data) on `threads` threads. Part of libgomp's
/// stable interface.
extern "C" void GOMP_parallel(void (*f)(void*), void* data, unsigned threads, unsigned flags);

namespace lockstep::detail {

/// Whether a parallel region of the calling thread has `threads` threads, and oneDNN plans for as
/// many. These are all the settings from which an OpenMP runtime derives the size of a team.
inline bool team_matches(int threads) {
  return omp_get_max_threads() == threads &&
         (threads == 1 || (omp_in_parallel() == 0 && omp_get_dynamic() == 0 &&
                           omp_get_max_active_levels() > 0 && omp_get_thread_limit() >= threads));
}

/// For its life the calling thread's regions ask for `threads` threads, and neither the environment
/// nor an earlier call of the program lets the runtime give fewer.
class TeamSettings {
 public:
  LOCKSTEP_DECL explicit TeamSettings(int threads);
  LOCKSTEP_DECL ~TeamSettings();
  TeamSettings(const TeamSettings&) = delete;
  TeamSettings& operator=(const TeamSettings&) = delete;

 private:
  int threads_, dynamic_, levels_;
};

/// Stack that a thread needs: the deepest path is the one in which oneDNN writes the code of a
/// kernel (measured by tests/unit/devices/cpu/team.cpp).
inline constexpr std::size_t min_stack_bytes = 56 * 1024;

/// What the calling thread knows of its team. The pool of OpenMP threads belongs to a thread, and a
/// fork copies the thread but not its pool.
struct TeamCache {
  int requested = 0;           ///< the largest team that was formed
  int granted = 0;             ///< its threads
  bool lost_pool = false;      ///< in a forked child: a region would wait for threads of the parent
  bool stack_checked = false;  ///< the calling thread's stack is large enough
};
inline TeamCache& team_cache() {
  static thread_local TeamCache cache;
  return cache;
}

/// Bytes that the calling thread's stack has left.
LOCKSTEP_COLD_DECL std::size_t stack_left();

/// \throws UsageError if the calling thread's stack is too small for the kernels.
LOCKSTEP_COLD_DECL void check_stack();

/// OpenMP runtimes end the process if a thread of a team cannot be created. \throws DeviceError
/// instead, if `count` more threads cannot be created.
LOCKSTEP_COLD_DECL void check_thread_creation(std::size_t count);

/// Threads of the team that the calling thread gets if it asks for `threads`: at least 1. It is
/// formed and counted once for each thread and size. \throws UsageError if a stack is too small,
/// DeviceError if the system refuses a thread.
LOCKSTEP_COLD_DECL int team_of(int threads);

/// Why the calling thread gets fewer threads than it asks for, and the remedy.
LOCKSTEP_COLD_DECL std::string team_shortfall(int threads);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cpu/team.ipp"
#endif
