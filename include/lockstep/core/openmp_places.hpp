/// \file
/// The cores on which an OpenMP runtime places threads. Its functions are weak references: a
/// program without OpenMP links without it and has no places.
#pragma once

#include <vector>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Whether an OpenMP runtime is loaded that binds threads (OMP_PROC_BIND, OMP_PLACES,
/// GOMP_CPU_AFFINITY).
LOCKSTEP_COLD_DECL bool openmp_binds();

/// The cores of all places. Requires openmp_binds().
LOCKSTEP_COLD_DECL std::vector<int> cores_of_openmp_places();

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/openmp_places.ipp"
#endif
