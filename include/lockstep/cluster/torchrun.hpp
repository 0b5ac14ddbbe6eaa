/// \file
/// The variables of torchrun, which Kubeflow's PyTorchJob sets too.
#pragma once

#include <optional>

#include "lockstep/cluster/environment.hpp"
#include "lockstep/cluster/source.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (default 29500), LOCAL_RANK, LOCAL_WORLD_SIZE,
/// TORCHELASTIC_RUN_ID. If torchrun's agent itself listens on MASTER_PORT
/// (TORCHELASTIC_USE_AGENT_STORE=True), the chief uses the next port. \throws ClusterError for an
/// invalid value.
LOCKSTEP_COLD_DECL std::optional<ClusterSource> torchrun_source(const Environment& environment);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/torchrun.ipp"
#endif
