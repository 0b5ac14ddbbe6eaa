/// \file
/// The C API of MPI, and its error codes in words.
#pragma once

#include <string>

// Without MPI's old C++ bindings, which warn and need another library.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// "MPI_ERR_TRUNCATE: message truncated", from MPI_Error_string.
LOCKSTEP_COLD_DECL std::string mpi_error_text(int code);

/// \throws CollectiveError if the code is an error: "MPI_Comm_rank: ...".
LOCKSTEP_DECL void check_mpi(int code, const char* call);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/mpi_calls.ipp"
#endif
