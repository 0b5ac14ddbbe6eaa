/// \file
/// How many files the process may open: each member of a job is a connection at the chief, and each
/// pair of members one more.
#pragma once

#include <string>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Raises the soft limit to the hard one, where the system allows it.
LOCKSTEP_COLD_DECL void raise_file_limit();

/// "the process may open 1024 files; raise the limit (ulimit -n)".
LOCKSTEP_COLD_DECL std::string files_sentence();

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/file_limit.ipp"
#endif
