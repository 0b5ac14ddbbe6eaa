/// \file
/// Standard streams that were closed when the program started.
#pragma once

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Opens /dev/null for each closed standard stream. Otherwise the next file or socket gets its
/// number, and whatever the program prints is written there. Call before opening a file to write or
/// a connection.
LOCKSTEP_COLD_DECL void reserve_standard_streams();

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/standard_streams.ipp"
#endif
