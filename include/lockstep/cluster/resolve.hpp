/// \file
/// Finds the job and this process' rank in it. Invariants: exactly one source is chosen, and
/// reported; a contradiction between complete sources is an error; an invalid source is an error,
/// never a reason to fall back to a weaker one.
///
///     ClusterArguments -> LOCKSTEP_WORLD_SIZE -> TF_CONFIG -> torchrun -> Open MPI -> Slurm -> PMI
///     (the program)       `-------------- LOCKSTEP_LAUNCHER picks one of the last five --------'
///          first complete source wins; a later complete one must agree with it
///
/// The exception is a launcher inside a launcher, as in `srun torchrun`. The variables do not show
/// which one is inside, but its processes are at least as many:
///
///     node 0             node 1
///     Slurm rank 0       Slurm rank 1        the outer launcher: a world of 2, 1 on each node
///     torchrun 0   1     torchrun 2   3      the inner one: a world of 4, 2 on each node; it wins
#pragma once

#include "lockstep/cluster/description/environment.hpp"
#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// Finds the job from the program's arguments and the environment. The caller logs `notes` once.
/// \code
///   const auto job = lockstep::resolve_cluster(lockstep::process_environment());
///   job.rank;   // 1
///   job.chief;  // 10.0.0.1:12345
/// \endcode
/// \throws ClusterError that names the variable or option: if nothing describes a job (unless a
/// single worker is permitted), a description is invalid, or two contradict each other.
LOCKSTEP_COLD_DECL ResolvedCluster resolve_cluster(const Environment& environment,
                                                   const ClusterArguments& arguments = {});

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/resolve.ipp"
#endif
