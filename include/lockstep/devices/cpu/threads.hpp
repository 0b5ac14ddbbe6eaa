/// \file
/// The OpenMP runtime that oneDNN computes with, called without OpenMP pragmas: the pool of threads
/// is one for the library and for the loops of this device, with g++ and with clang, and no
/// compiler flag is needed. Invariant: a loop is cut into one contiguous range a thread, so equal
/// sizes and thread counts give equal bits.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <thread>

#include "lockstep/core/slice.hpp"

#if __has_include(<omp.h>)
#include <omp.h>
#else
extern "C" {
void omp_set_num_threads(int) noexcept;
int omp_get_max_threads() noexcept;
int omp_get_num_threads() noexcept;
int omp_get_thread_num() noexcept;
}
#endif

/// What `#pragma omp parallel` becomes in g++: runs f(data) on `threads` threads. Part of libgomp's
/// stable interface.
extern "C" void GOMP_parallel(void (*f)(void*), void* data, unsigned threads, unsigned flags);

namespace lockstep::detail {

/// A set of cores.
class Cores {
 public:
  /// Those that the calling thread may use.
  Cores() {
    CPU_ZERO(&set_);
    is_known_ = sched_getaffinity(0, sizeof set_, &set_) == 0;
  }
  /// At least 1.
  int count() const {
    return std::max(
        1, is_known_ ? CPU_COUNT(&set_) : static_cast<int>(std::thread::hardware_concurrency()));
  }
  /// The index-th of `parts` shares, of one core at least: with more parts than cores some have the
  /// same core.
  Cores share(std::size_t parts, std::size_t index) const {
    const auto cores = static_cast<std::size_t>(count());
    const Slice mine = parts <= cores ? slice_of(cores, parts, index) : Slice{index % cores, 1};
    Cores result = *this;
    std::size_t nth = 0;
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set_)) {
        if (nth < mine.first || nth >= mine.first + mine.count) CPU_CLR(core, &result.set_);
        ++nth;
      }
    return result;
  }
  /// From now on the calling thread, and the threads that it starts, run on these cores only.
  void bind() const {
    if (is_known_) sched_setaffinity(0, sizeof set_, &set_);
  }
  friend bool operator==(const Cores& a, const Cores& b) { return CPU_EQUAL(&a.set_, &b.set_); }

 private:
  cpu_set_t set_;
  bool is_known_;
};

/// The number of OpenMP threads of the calling thread, and its cores if some are given, for the
/// object's life.
class ThreadScope {
 public:
  ThreadScope(int threads, const std::optional<Cores>& cores) : threads_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
    if (!cores) return;
    cores_.emplace();
    cores->bind();
  }
  ~ThreadScope() {
    omp_set_num_threads(threads_);
    if (cores_) cores_->bind();
  }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int threads_;
  std::optional<Cores> cores_;
};

/// Examples that are worth a thread, if one has `size` elements: waking a thread costs some
/// microseconds.
constexpr std::size_t parallel_grain(std::size_t size) { return (16384 + size) / (size + 1) + 1; }

/// `body(Slice, index)` on each of at most `threads` threads, whose slices cover `n`; no slice but
/// the last is cut below `grain`. The indices are below `threads` and no two running bodies of a
/// call share one, also inside a parallel region of the caller. The body must not throw.
template <class Body>
void parallel_ranges(int threads, std::size_t n, std::size_t grain, const Body& body) {
  const std::size_t parts =
      std::min(static_cast<std::size_t>(threads), n / std::max<std::size_t>(grain, 1));
  if (parts <= 1) return body(Slice{0, n}, std::size_t{0});
  struct Work {
    const Body& body;
    std::size_t n;
  } work{body, n};
  GOMP_parallel(
      [](void* data) {
        const Work& w = *static_cast<const Work*>(data);
        const auto index = static_cast<std::size_t>(omp_get_thread_num());
        w.body(slice_of(w.n, static_cast<std::size_t>(omp_get_num_threads()), index), index);
      },
      &work, static_cast<unsigned>(parts), 0);
}

}  // namespace lockstep::detail
