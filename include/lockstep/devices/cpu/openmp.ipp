#pragma once

#include "lockstep/devices/cpu/openmp.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// \throws UsageError unless the calling thread gets as many.
inline int checked_team(int threads) {
  if (const int given = team_of(threads); given < threads)
    throw UsageError("cpu: the model computes with {} threads, and OpenMP gives {} here: {}",
                     threads, given, team_shortfall(threads));
  return threads;
}

struct BoundPool {
  int threads = 0;  // the first so many threads are bound to `cores`; 0: none ever was
  Cores cores;
};
/// Of the calling thread: its threads live on between scopes, and keep their cores. One for all
/// libraries of the process, as OpenMP's pool is; see `log_state`.
[[gnu::visibility("default")]] inline BoundPool& bound_pool() {
  static thread_local BoundPool pool;
  return pool;
}
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
  // Always the whole team, even for fewer parts: libgomp ends threads that a region leaves out.
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
