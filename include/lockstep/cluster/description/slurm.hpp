/// \file
/// The variables of a Slurm job step (srun).
#pragma once

#include <optional>

#include "lockstep/cluster/description/environment.hpp"
#include "lockstep/cluster/description/source.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// SLURM_JOB_ID, SLURM_STEP_ID, SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS,
/// SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE, SLURM_LOCALID, SLURM_NODEID. Nullopt outside a
/// step of several tasks: the shell of a batch script has most of these variables too. The chief
/// runs on the first host of the list, or of SLURM_HOSTFILE for SLURM_DISTRIBUTION=arbitrary, since
/// Slurm sorts the list; its port is derived from the job id, as in JAX. \throws ClusterError for an
/// invalid value.
LOCKSTEP_COLD_DECL std::optional<ClusterSource> slurm_source(const Environment& environment);

/// The chief's host for another launcher's job within an allocation: the first of
/// SLURM_JOB_NODELIST, on which mpirun and mpiexec start rank 0. Without effect outside an allocation.
LOCKSTEP_COLD_DECL void use_first_node(ClusterSource& source, const Environment& environment);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/description/slurm.ipp"
#endif
