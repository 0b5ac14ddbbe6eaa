/// \file
/// MPI as the data plane of a job.
#pragma once

#include <string_view>

#include "lockstep/core/config.hpp"
#include "lockstep/strategies/job/data_plane.hpp"

namespace lockstep {

/// All workers exchange over the MPI library whose mpirun has started them, which knows their
/// network. lockstep opens no port for data; the rendezvous still has the chief's. Needs
/// lockstep::mpi. \throws ClusterError if MPI's ranks are not those of the job.
/// \code
///   ls::MultiWorkerMirrored<ls::Cpu, ls::Mpi>{}  // mpirun -n 4 ./train
/// \endcode
struct Mpi {
  static constexpr std::string_view name = "mpi";
  static constexpr bool can_reform = false;  // MPI ends all processes when one is lost
  LOCKSTEP_COLD_DECL static JobGroups connect(const JobLinks& links);
};
static_assert(DataPlane<Mpi>);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/strategies/planes/mpi_plane.ipp"
#endif
