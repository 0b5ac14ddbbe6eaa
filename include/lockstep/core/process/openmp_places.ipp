#pragma once

#include "lockstep/core/process/openmp_places.hpp"

#include <algorithm>
#include <cstddef>

// Included for the exact declarations: clang's and g++'s differ in noexcept.
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

bool openmp_binds() {
  return &omp_get_num_places != nullptr && &omp_get_place_num_procs != nullptr &&
         &omp_get_place_proc_ids != nullptr && omp_get_num_places() > 0;
}

std::vector<int> cores_of_openmp_places() {
  std::vector<int> result;
  for (int place = 0; place < omp_get_num_places(); ++place) {
    const int count = std::max(0, omp_get_place_num_procs(place));
    std::vector<int> cores(static_cast<std::size_t>(count));
    omp_get_place_proc_ids(place, cores.data());
    result.insert(result.end(), cores.begin(), cores.end());
  }
  return result;
}

}  // namespace lockstep::detail
