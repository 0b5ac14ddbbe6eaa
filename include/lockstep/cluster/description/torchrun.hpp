/// \file
/// The variables of torchrun, which Kubeflow's PyTorchJob sets too, and those that Kubeflow Trainer
/// sets for torchrun: PET_NNODES and so on.
#pragma once

#include <optional>

#include "lockstep/cluster/description/environment.hpp"
#include "lockstep/cluster/description/source.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (default 29500), LOCAL_RANK, LOCAL_WORLD_SIZE,
/// TORCHELASTIC_RUN_ID. If torchrun's agent itself listens on MASTER_PORT
/// (TORCHELASTIC_USE_AGENT_STORE=True), the chief uses a port that is derived from the run id and the
/// agent's port; the next one may be the agent of another job. Each rank may have its own name of
/// rank 0's host, and rank 0 none or "localhost" (PyTorchJob): with a secret it then listens at all
/// addresses.
///
/// Without RANK and WORLD_SIZE: PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT describe
/// one worker a node, since no torchrun has started several. \throws ClusterError for an invalid
/// value.
LOCKSTEP_COLD_DECL std::optional<ClusterSource> torchrun_source(const Environment& environment);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/description/torchrun.ipp"
#endif
