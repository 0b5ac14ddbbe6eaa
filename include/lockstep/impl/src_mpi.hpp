/// \file
/// All definitions of the component mpi. Include it in exactly one source file of a program whose
/// units all define LOCKSTEP_SEPARATE_COMPILATION; see src.hpp.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error "lockstep/impl/src_mpi.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/collectives/mpi/mpi_channel.ipp"
#include "lockstep/collectives/mpi/mpi_communicator.ipp"
#include "lockstep/collectives/mpi/mpi_group.ipp"
#include "lockstep/collectives/mpi/mpi_transfers.ipp"
#include "lockstep/strategies/planes/mpi_plane.ipp"
