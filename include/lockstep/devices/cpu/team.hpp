/// \file
/// The team of OpenMP threads that a thread gets. OpenMP may give fewer threads than a parallel
/// region asks for, without an error; oneDNN then computes a part of the result or waits for ever.
/// Invariant: a team's size is counted before anything is planned for it, and no setting that could
/// change it is left to the program while a ThreadScope lives (docs/architecture.md, "Threads of
/// the Cpu").
#pragma once

#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

#include "lockstep/core/error.hpp"

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
inline bool gives_team(int threads) {
  return omp_get_max_threads() == threads &&
         (threads == 1 || (omp_in_parallel() == 0 && omp_get_dynamic() == 0 &&
                           omp_get_max_active_levels() > 0 && omp_get_thread_limit() >= threads));
}

/// For its life the calling thread's regions ask for `threads` threads, and neither the environment
/// nor an earlier call of the program lets the runtime give fewer.
class TeamSettings {
 public:
  explicit TeamSettings(int threads)
      : threads_(omp_get_max_threads()),
        dynamic_(omp_get_dynamic()),
        levels_(omp_get_max_active_levels()) {
    omp_set_num_threads(threads);
    if (dynamic_ != 0) omp_set_dynamic(0);
    if (levels_ < 1) omp_set_max_active_levels(1);
  }
  ~TeamSettings() {
    omp_set_num_threads(threads_);
    if (dynamic_ != 0) omp_set_dynamic(dynamic_);
    if (levels_ < 1) omp_set_max_active_levels(levels_);
  }
  TeamSettings(const TeamSettings&) = delete;
  TeamSettings& operator=(const TeamSettings&) = delete;

 private:
  int threads_, dynamic_, levels_;
};

/// Stack that a thread needs: the deepest path is the one in which oneDNN writes the code of a
/// kernel (measured by tests/unit/devices/cpu/team.cpp).
inline constexpr std::size_t least_stack = 56 * 1024;

/// What the calling thread knows of its team. The pool of OpenMP threads belongs to a thread, and a
/// fork copies the thread but not its pool.
struct KnownTeam {
  int asked = 0;             ///< the largest team that was formed
  int given = 0;             ///< its threads
  bool lost_pool = false;    ///< in a forked child: a region would wait for threads of the parent
  bool stack_known = false;  ///< the calling thread's stack is large enough
};
inline KnownTeam& known_team() {
  static thread_local KnownTeam known;
  return known;
}

/// Notes, in a child that was forked without exec, that the pool was not copied. The program's own
/// regions may have made the pool, so more than one thread in the parent is enough.
class ForkWatch {
 public:
  ForkWatch() {
    pthread_atfork([] { had_threads() = count_threads() > 1; }, nullptr,
                   [] {
                     KnownTeam& known = known_team();
                     known.lost_pool = known.lost_pool || known.given > 1 || had_threads();
                   });
  }

 private:
  static bool& had_threads() {
    static bool had = false;
    return had;
  }
  static std::size_t count_threads() {
    struct stat tasks{};
    return ::stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > 2 ? tasks.st_nlink - 2 : 1;
  }
};
inline const ForkWatch fork_watch;

/// Bytes that the calling thread's stack has left.
[[gnu::cold, gnu::noinline]] inline std::size_t stack_left() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return least_stack;
  void* lowest = nullptr;
  std::size_t size = 0;
  pthread_attr_getstack(&attributes, &lowest, &size);
  pthread_attr_destroy(&attributes);
  const auto* const here = static_cast<const char*>(__builtin_frame_address(0));
  return static_cast<std::size_t>(here - static_cast<const char*>(lowest));
}

/// \throws UsageError if the calling thread's stack is too small for the kernels.
[[gnu::cold, gnu::noinline]] inline void check_stack() {
  if (const std::size_t left = stack_left(); left < least_stack)
    throw UsageError({"cpu: the calling thread has ", left / 1024, " KiB of stack left, and needs ",
                      least_stack / 1024,
                      "; give it more where it is created (pthread_attr_setstacksize)"});
  known_team().stack_known = true;
}

/// OpenMP runtimes end the process if a thread of a team cannot be created. \throws DeviceError
/// instead, if `count` more threads cannot be created.
[[gnu::cold, gnu::noinline]] inline void check_thread_creation(std::size_t count) {
  std::vector<pthread_t> threads;
  threads.reserve(count);
  std::mutex all_created;
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
    throw DeviceError({"cpu: the system refuses thread ", threads.size() + 2, " of ", count + 1,
                       ": ", std::generic_category().message(error),
                       "; set Cpu::threads to fewer, or raise the limit of processes (ulimit -u, "
                       "the container's pids.max) or of memory (ulimit -v)"});
}

/// Threads of the team that the calling thread gets if it asks for `threads`: at least 1. It is
/// formed and counted once for each thread and size. \throws UsageError if a stack is too small,
/// DeviceError if the system refuses a thread.
[[gnu::cold, gnu::noinline]] inline int team_of(int threads) {
  KnownTeam& known = known_team();
  if (!known.stack_known) check_stack();
  if (threads == 1 || omp_in_parallel() != 0 || known.lost_pool) return 1;
  if (threads <= known.asked) return std::min(threads, known.given);
  const int wanted = std::min(threads, omp_get_thread_limit());
  check_thread_creation(static_cast<std::size_t>(wanted - 1));
  struct Count {
    int threads = 1;
    std::mutex mutex{};
    std::size_t stack = least_stack;
  } count;
  const TeamSettings settings(wanted);
  GOMP_parallel(
      [](void* data) {
        Count& c = *static_cast<Count*>(data);
        const std::scoped_lock lock(c.mutex);
        c.threads = omp_get_num_threads();
        if (omp_get_thread_num() != 0) c.stack = std::min(c.stack, stack_left());
      },
      &count, static_cast<unsigned>(wanted), 0);
  if (count.stack < least_stack)
    throw UsageError({"cpu: OpenMP's threads have ", count.stack / 1024,
                      " KiB of stack left, and need ", least_stack / 1024,
                      "; raise OMP_STACKSIZE or unset it"});
  known.asked = threads;
  known.given = count.threads;
  return count.threads;
}

/// Why the calling thread gets fewer threads than it asks for, and the remedy.
[[gnu::cold, gnu::noinline]] inline std::string why_fewer(int threads) {
  if (omp_in_parallel() != 0)
    return "inside an OpenMP parallel region a thread computes alone; make and use the model "
           "outside of the region, or set Cpu::threads to 1";
  if (known_team().lost_pool)
    return "a process that was forked from one with threads lacks OpenMP's; fork before the first "
           "thread starts, use exec, or make and use the model in a new std::thread, or set "
           "Cpu::threads to 1";
  if (omp_get_thread_limit() < threads)
    return text({"OMP_THREAD_LIMIT is ", omp_get_thread_limit(),
                 "; unset it, or set Cpu::threads to no more"});
  return "the OpenMP runtime gives no more; set Cpu::threads to that number";
}

}  // namespace lockstep::detail
