/// \file
/// Size of the OpenMP team of the calling thread. OpenMP may silently grant a parallel region fewer
/// threads than requested; oneDNN then computes only part of the result, or deadlocks.
///
///     team_of(n)      in open(): forms a team once, counts it; the context plans for that size
///     TeamSettings    in each scope(): sets every value from which OpenMP derives a team size
///     team_matches(n) before each oneDNN primitive: verifies those values
///
/// Invariant: a team is counted before anything is planned for its size, and while a ThreadScope
/// lives, no setting of the program can change that size (docs/architecture.md, "Threads of the
/// Cpu").
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

/// Runs f(data) on a team of `threads`. g++ compiles `#pragma omp parallel` to this call, which is
/// part of libgomp's stable ABI.
extern "C" void GOMP_parallel(void (*f)(void*), void* data, unsigned threads, unsigned flags);

namespace lockstep::detail {

/// Whether a parallel region of the calling thread would have `threads` threads, and oneDNN would
/// plan for that number. Covers all settings from which an OpenMP runtime derives a team size.
inline bool team_matches(int threads) {
  return omp_get_max_threads() == threads &&
         (threads == 1 || (omp_in_parallel() == 0 && omp_get_dynamic() == 0 &&
                           omp_get_max_active_levels() > 0 && omp_get_thread_limit() >= threads));
}

/// Scope in which the calling thread's parallel regions request `threads` threads, with every
/// setting overridden by which the environment or the program could make the runtime grant fewer.
/// The destructor restores the settings.
class TeamSettings {
 public:
  LOCKSTEP_DECL explicit TeamSettings(int threads);
  LOCKSTEP_DECL ~TeamSettings();
  TeamSettings(const TeamSettings&) = delete;
  TeamSettings& operator=(const TeamSettings&) = delete;

 private:
  int threads_, dynamic_, levels_;
};

/// Stack that a thread needs, in bytes. The deepest call chain is oneDNN's code generation
/// (measured by tests/unit/devices/cpu/team.cpp).
inline constexpr std::size_t min_stack_bytes = 56 * 1024;

/// Result of earlier team_of calls on this thread. Each thread has its own pool of OpenMP threads,
/// and a fork copies the thread without its pool.
struct TeamCache {
  int requested = 0;           ///< the largest team size requested so far
  int granted = 0;             ///< the size of that team
  bool lost_pool = false;      ///< forked child: a region would wait for threads of the parent
  bool stack_checked = false;  ///< this thread's stack is known to be large enough
};
inline TeamCache& team_cache() {
  static thread_local TeamCache cache;
  return cache;
}

/// Remaining stack of the calling thread, in bytes.
LOCKSTEP_COLD_DECL std::size_t stack_left();

/// \throws UsageError if the calling thread's stack is too small for the kernels.
LOCKSTEP_COLD_DECL void check_stack();

/// Creates and joins `count` threads, because OpenMP's runtime ends the process if it cannot create
/// a thread of a team. \throws DeviceError if they cannot be created.
LOCKSTEP_COLD_DECL void check_thread_creation(std::size_t count);

/// Returns the size of the team that OpenMP grants the calling thread for a request of `threads`;
/// at least 1. The team is formed and counted once per thread and size. \throws UsageError if a
/// stack is too small. \throws DeviceError if the system cannot create the threads.
LOCKSTEP_COLD_DECL int team_of(int threads);

/// The reason why the calling thread is granted fewer than `threads`, and the remedy, for messages.
LOCKSTEP_COLD_DECL std::string team_shortfall(int threads);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cpu/team.ipp"
#endif
