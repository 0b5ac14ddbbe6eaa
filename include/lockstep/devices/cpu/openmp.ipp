#pragma once

#include "lockstep/devices/cpu/openmp.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// Returns `threads`. \throws UsageError if OpenMP grants the calling thread fewer.
inline int checked_team(int threads) {
  if (const int given = team_of(threads); given < threads)
    throw UsageError("cpu: the model computes with {} threads, but OpenMP grants {} here: {}",
                     threads, given, team_shortfall(threads));
  return threads;
}

struct BoundPool {
  int threads = 0;  // pool threads [0, threads) are bound to `cores`; 0: none was ever bound
  Cores cores;
};
/// Binding of the calling thread's pool. It outlives a ThreadScope, because pool threads keep their
/// affinity. Default visibility makes it unique in the process even if several shared libraries
/// contain this code, since they share OpenMP's pool too; see `log_state`.
[[gnu::visibility("default")]] inline BoundPool& bound_pool() {
  static thread_local BoundPool pool;
  return pool;
}
/// Binds the first `threads` threads of the pool to `cores`, unless they are bound already.
inline void bind_pool(int threads, const Cores& cores) {
  BoundPool& pool = bound_pool();
  if (threads <= pool.threads && pool.cores == cores) return;
  pool = {threads, cores};
  if (threads == 1) return;
  GOMP_parallel([](void* data) { static_cast<const Cores*>(data)->bind(); }, &pool.cores,
                static_cast<unsigned>(threads), 0);
}

ThreadScope::ThreadScope(int threads, const std::optional<Cores>& cores)
    : settings_(checked_team(threads)) {
  if (cores) bound_.emplace(*cores);
  if (cores || bound_pool().threads > 0) bind_pool(threads, cores ? *cores : Cores::of_process());
}

void parallel_ranges(int threads, std::size_t n, std::size_t grain,
                     FunctionRef<void(Slice, std::size_t)> body) {
  const std::size_t parts =
      std::min(static_cast<std::size_t>(threads), n / std::max<std::size_t>(grain, 1));
  if (parts <= 1) return body({0, n}, 0);
  struct Work {
    FunctionRef<void(Slice, std::size_t)> body;
    std::size_t n, parts;
  } work{body, n, parts};
  // Always requests the whole team, even for fewer parts: libgomp terminates the pool threads that
  // a region does not use, and would create them again for the next.
  GOMP_parallel(
      [](void* data) {
        const Work& w = *static_cast<const Work*>(data);
        const auto team = static_cast<std::size_t>(omp_get_num_threads());
        for (auto i = static_cast<std::size_t>(omp_get_thread_num()); i < w.parts; i += team)
          w.body(slice_of(w.n, w.parts, i), i);
      },
      &work, static_cast<unsigned>(threads), 0);
}

}  // namespace lockstep::detail
