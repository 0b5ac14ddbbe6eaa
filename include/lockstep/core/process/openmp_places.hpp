/// \file
/// The cores of an OpenMP runtime's places. The runtime's functions are weak references: a program
/// without OpenMP links without them and has no places.
#pragma once

#include <vector>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Whether an OpenMP runtime is loaded and binds threads (OMP_PROC_BIND, OMP_PLACES,
/// GOMP_CPU_AFFINITY).
LOCKSTEP_COLD_DECL bool openmp_binds();

/// The cores of all places. Precondition: openmp_binds().
LOCKSTEP_COLD_DECL std::vector<int> cores_of_openmp_places();

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/process/openmp_places.ipp"
#endif
