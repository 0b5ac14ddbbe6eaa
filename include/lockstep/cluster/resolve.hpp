/// \file
/// Finds out who is in the job and who this process is. Invariants: one source is chosen and told;
/// complete sources never contradict each other silently; a malformed source is never skipped for a
/// weaker one.
///
/// Order: the program's own arguments (ClusterArguments); LOCKSTEP_WORLD_SIZE; TF_CONFIG; torchrun;
/// Open MPI; Slurm; PMI. LOCKSTEP_LAUNCHER picks one of the last five.
#pragma once

#include "lockstep/cluster/environment.hpp"
#include "lockstep/cluster/resolved_cluster.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

namespace detail {}  // namespace detail

/// Finds the job from what the program says and the environment. The caller logs `notes` once.
/// \code
///   const auto job = lockstep::resolve_cluster(lockstep::process_environment());
///   job.rank;   // 1
///   job.chief;  // 10.0.0.1:12345
/// \endcode
/// \throws ClusterError if nothing describes a job (unless a single worker is permitted), if a
/// description is wrong, or if two contradict each other; it names the variable or option.
LOCKSTEP_COLD_DECL ResolvedCluster resolve_cluster(const Environment& environment,
                                                   const ClusterArguments& arguments = {});

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/resolve.ipp"
#endif
