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

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

/// "MPI_ERR_TRUNCATE: message truncated", from MPI_Error_string.
[[gnu::cold]] inline std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS || length == 0)
    return format_text("MPI error {}", code);
  return text;
}

/// \throws CollectiveError if the code is an error: "MPI_Comm_rank: ...".
inline void check_mpi(int code, const char* call) {
  if (code != MPI_SUCCESS) throw CollectiveError("{} failed: {}", call, mpi_error_text(code));
}

}  // namespace lockstep::detail
