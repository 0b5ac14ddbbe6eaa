/// \file
/// The variables of Open MPI, and those of MPICH, Intel MPI, MVAPICH and PMIx. None of them holds
/// the address of rank 0: that comes from MASTER_ADDR or LOCKSTEP_COORDINATOR, or all ranks run on
/// one machine, or in an allocation of Slurm, on whose first node mpirun starts rank 0. The job id,
/// from which the chief's port is derived, is Open MPI's own, or the process that has started all
/// ranks of the machine.
#pragma once

#include <optional>

#include "lockstep/cluster/description/environment.hpp"
#include "lockstep/cluster/description/source.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// OMPI_COMM_WORLD_{RANK,SIZE,LOCAL_RANK,LOCAL_SIZE}. \throws ClusterError for an invalid value.
LOCKSTEP_COLD_DECL std::optional<ClusterSource> open_mpi_source(const Environment& environment);

/// PMI_RANK and PMI_SIZE, or MV2_COMM_WORLD_RANK and _SIZE. PMIX_RANK and PALS_RANKID come without
/// a size, which alone does not describe a job. \throws ClusterError for an invalid value.
LOCKSTEP_COLD_DECL std::optional<ClusterSource> pmi_source(const Environment& environment);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/description/mpi.ipp"
#endif
