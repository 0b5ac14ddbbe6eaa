#pragma once

#include "lockstep/strategies/planes/mpi_plane.hpp"

#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/collectives/mpi/mpi_communicator.hpp"
#include "lockstep/collectives/mpi/mpi_group.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

JobGroups Mpi::connect(const JobLinks& links) {
  if (links.where.transport != Transport::automatic ||
      links.where.wire != WireSecurity::automatic) {
    links.peers_know = true;  // the settings are the same on all ranks
    throw ClusterError(
        "this program exchanges over ls::Mpi, which has its own settings; unset LOCKSTEP_TRANSPORT "
        "and LOCKSTEP_WIRE");
  }
  const MpiCommunicator world = MpiCommunicator::world();
  if (world.rank() != links.rank() || world.size() != links.size())
    throw ClusterError(
        "MPI has this process as rank {} of {}, the job as rank {} of {}; start the workers with "
        "mpirun, and without TF_CONFIG and LOCKSTEP_RANK",
        world.rank(), world.size(), links.rank(), links.size());
  return {MpiGroup(world, links.layers()), MpiGroup(world, links.gradients())};
}

}  // namespace lockstep
