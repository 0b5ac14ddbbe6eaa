/// \file
/// The cores on which an OpenMP runtime places threads. Its functions are weak references: a
/// program without OpenMP links without it and has no places.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

// Declared as the compiler's own header does: clang's and g++'s differ in noexcept.
#if __has_include(<omp.h>)
#include <omp.h>
#else
extern "C" {
int omp_get_num_places() noexcept;
int omp_get_place_num_procs(int) noexcept;
void omp_get_place_proc_ids(int, int*) noexcept;
}
#endif
#pragma weak omp_get_num_places
#pragma weak omp_get_place_num_procs
#pragma weak omp_get_place_proc_ids

namespace lockstep::detail {

/// Whether an OpenMP runtime is loaded that binds threads (OMP_PROC_BIND, OMP_PLACES,
/// GOMP_CPU_AFFINITY).
inline bool openmp_binds() {
  return &omp_get_num_places != nullptr && &omp_get_place_num_procs != nullptr &&
         &omp_get_place_proc_ids != nullptr && omp_get_num_places() > 0;
}

/// f(core number) for each core of all places. Requires openmp_binds().
template <class F>
[[gnu::cold]] void for_cores_of_openmp_places(const F& f) {
  for (int place = 0; place < omp_get_num_places(); ++place) {
    const int count = std::max(0, omp_get_place_num_procs(place));
    std::vector<int> cores(static_cast<std::size_t>(count));
    omp_get_place_proc_ids(place, cores.data());
    for (const int core : cores) f(core);
  }
}

}  // namespace lockstep::detail
