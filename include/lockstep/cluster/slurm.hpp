/// \file
/// The variables of a Slurm job step (srun).
#pragma once

#include <optional>

#include "lockstep/cluster/environment.hpp"
#include "lockstep/cluster/source.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// SLURM_JOB_ID, SLURM_STEP_ID, SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS,
/// SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE, SLURM_LOCALID, SLURM_NODEID. Only in a step of
/// more than one task: the shell of a batch script has most of them too. The chief is on the first
/// host of the list; its port comes from the job's number, as JAX does it.
/// \throws ClusterError if a value is wrong.
LOCKSTEP_COLD_DECL std::optional<ClusterSource> slurm_source(const Environment& environment);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/slurm.ipp"
#endif
