/// \file
/// Process groups over MPI, for programs that mpirun starts. Requires MPI (lockstep::mpi).
#pragma once

#include "lockstep/collectives/mpi_communicator.hpp"
#include "lockstep/collectives/mpi_group.hpp"
