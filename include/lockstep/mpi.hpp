/// \file
/// MPI as the data plane between workers, and process groups over MPI, for programs that mpirun
/// starts. Include it in addition to cluster.hpp. Requires MPI (lockstep::mpi).
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/cluster.hpp"
#include "lockstep/collectives/mpi/mpi_communicator.hpp"
#include "lockstep/collectives/mpi/mpi_group.hpp"
#include "lockstep/strategies/planes/mpi_plane.hpp"
