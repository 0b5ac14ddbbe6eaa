/// \file
/// The limit of open files. Each member is a connection of the chief, and each pair of members that
/// exchanges data is one more.
#pragma once

#include <string>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Raises the soft limit to the hard limit if the system allows it.
LOCKSTEP_COLD_DECL void raise_file_limit();

/// For messages: "the process may open 1024 files; raise the limit (ulimit -n)".
LOCKSTEP_COLD_DECL std::string files_sentence();

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/file_limit.ipp"
#endif
