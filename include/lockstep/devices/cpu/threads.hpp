/// \file
/// The OpenMP runtime that oneDNN computes with, called without OpenMP pragmas: the pool of threads
/// is one for the library and for the loops of this device, with g++ and with clang, and no
/// compiler flag is needed. Invariant: a loop is cut into one contiguous range a thread, so equal
/// sizes and thread counts give equal bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>

#include "lockstep/core/cores.hpp"
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

/// The number of OpenMP threads of the calling thread, and its cores if some are given, for the
/// object's life.
class ThreadScope {
 public:
  [[gnu::cold]] ThreadScope(int threads, const std::optional<Cores>& cores)
      : threads_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
    if (cores) bound_.emplace(*cores);
    if (cores || bound_pool().threads > 0) bind_pool(threads, cores ? *cores : Cores());
  }
  ~ThreadScope() { omp_set_num_threads(threads_); }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  struct Pool {
    int threads = 0;  // the first so many threads are bound to `cores`; 0: none ever was
    Cores cores;
  };
  /// Of the calling thread: its threads live on between scopes, and keep their cores.
  static Pool& bound_pool() {
    static thread_local Pool pool;
    return pool;
  }
  static void bind_pool(int threads, const Cores& cores) {
    Pool& pool = bound_pool();
    if (threads <= pool.threads && pool.cores == cores) return;
    pool = {threads, cores};
    if (threads == 1) return;
    GOMP_parallel([](void* data) { static_cast<const Cores*>(data)->bind(); }, &pool.cores,
                  static_cast<unsigned>(threads), 0);
  }

  int threads_;
  std::optional<CoreScope> bound_;
};

/// Examples that are worth a thread, if one has `size` elements: waking a thread costs some
/// microseconds.
constexpr std::size_t parallel_grain(std::size_t size) { return (16384 + size) / (size + 1) + 1; }

/// A loop's body as a plain function, so that the compiler makes one text of it.
struct RangeBody {
  const void* body;
  void (*call)(const void* body, Slice part, std::size_t index);
};
[[gnu::noinline]] inline void parallel_ranges(int threads, std::size_t n, std::size_t grain,
                                              const RangeBody& body) {
  const std::size_t parts =
      std::min(static_cast<std::size_t>(threads), n / std::max<std::size_t>(grain, 1));
  if (parts <= 1) return body.call(body.body, {0, n}, 0);
  struct Work {
    RangeBody body;
    std::size_t n;
  } work{body, n};
  GOMP_parallel(
      [](void* data) {
        const Work& w = *static_cast<const Work*>(data);
        const auto index = static_cast<std::size_t>(omp_get_thread_num());
        w.body.call(w.body.body,
                    slice_of(w.n, static_cast<std::size_t>(omp_get_num_threads()), index), index);
      },
      &work, static_cast<unsigned>(parts), 0);
}

/// `body(Slice, index)` on each of at most `threads` threads, whose slices cover `n`; no slice but
/// the last is cut below `grain`. The indices are below `threads` and no two running bodies of a
/// call share one, also inside a parallel region of the caller. The body must not throw.
template <class Body>
void parallel_ranges(int threads, std::size_t n, std::size_t grain, const Body& body) {
  parallel_ranges(threads, n, grain, RangeBody{&body, [](const void* b, Slice part, std::size_t i) {
                                                 (*static_cast<const Body*>(b))(part, i);
                                               }});
}

}  // namespace lockstep::detail
