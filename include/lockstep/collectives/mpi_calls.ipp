#pragma once

#include "lockstep/collectives/mpi_calls.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS || length == 0)
    return format_text("MPI error {}", code);
  return text;
}

void check_mpi(int code, const char* call) {
  if (code != MPI_SUCCESS) throw CollectiveError("{} failed: {}", call, mpi_error_text(code));
}

}  // namespace lockstep::detail
