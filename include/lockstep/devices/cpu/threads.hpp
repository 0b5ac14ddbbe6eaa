/// \file
/// The OpenMP runtime that oneDNN computes with, called without OpenMP pragmas: the pool of threads
/// is one for the library and for the loops of this device, with g++ and with clang, and no
/// compiler flag is needed. Invariant: a loop is cut into contiguous parts by the number of threads
/// that a context has, and the threads that come share the parts, so equal sizes and thread counts
/// give equal bits whatever team the runtime gives.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>

#include "lockstep/core/cores.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/devices/cpu/team.hpp"

namespace lockstep::detail {

/// The number of OpenMP threads of the calling thread, and its cores if some are given, for the
/// object's life. \throws UsageError if the calling thread cannot have them: inside a parallel
/// region of the program, or in a forked child.
class ThreadScope {
 public:
  [[gnu::cold]] ThreadScope(int threads, const std::optional<Cores>& cores)
      : settings_(checked(threads)) {
    if (cores) bound_.emplace(*cores);
    if (cores || bound_pool().threads > 0) bind_pool(threads, cores ? *cores : Cores::of_process());
  }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  /// \throws UsageError unless the calling thread gets as many.
  [[gnu::cold]] static int checked(int threads) {
    if (const int given = team_of(threads); given < threads)
      throw UsageError({"cpu: the model computes with ", threads, " threads, and OpenMP gives ",
                        given, " here: ", why_fewer(threads)});
    return threads;
  }

  struct Pool {
    int threads = 0;  // the first so many threads are bound to `cores`; 0: none ever was
    Cores cores;
  };
  /// Of the calling thread: its threads live on between scopes, and keep their cores. One for all
  /// libraries of the process, as OpenMP's pool is; see `log_state`.
  [[gnu::visibility("default")]] static Pool& bound_pool() {
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

  TeamSettings settings_;
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
    std::size_t n, parts;
  } work{body, n, parts};
  // Always the whole team, even for fewer parts: libgomp ends threads that a region leaves out.
  GOMP_parallel(
      [](void* data) {
        const Work& w = *static_cast<const Work*>(data);
        const auto team = static_cast<std::size_t>(omp_get_num_threads());
        for (auto i = static_cast<std::size_t>(omp_get_thread_num()); i < w.parts; i += team)
          w.body.call(w.body.body, slice_of(w.n, w.parts, i), i);
      },
      &work, static_cast<unsigned>(threads), 0);
}

/// `body(Slice, index)` for at most `threads` slices, which cover `n`; no slice but the last is cut
/// below `grain`. Each slice has an index of its own, below `threads`. The slices do not depend on
/// the team that computes them. The body must not throw.
template <class Body>
void parallel_ranges(int threads, std::size_t n, std::size_t grain, const Body& body) {
  parallel_ranges(threads, n, grain, RangeBody{&body, [](const void* b, Slice part, std::size_t i) {
                                                 (*static_cast<const Body*>(b))(part, i);
                                               }});
}

}  // namespace lockstep::detail
