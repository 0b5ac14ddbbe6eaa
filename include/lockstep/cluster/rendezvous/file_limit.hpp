/// \file
/// The limit of open files. Each member is a connection of the chief, and each peer with which a
/// process exchanges data is one more. Invariant: a limit that is too small is reported, with the
/// number that is needed, before the process waits for others.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Raises the soft limit to the hard limit if the system allows it.
LOCKSTEP_COLD_DECL void raise_file_limit();

/// For messages: "the process may open 1024 files; raise the limit (ulimit -n)".
LOCKSTEP_COLD_DECL std::string files_sentence();

/// Checks that this process may open `count` more files, and a few for other purposes. `purpose`
/// completes the message: "512 workers".
/// \code
///   check_file_limit(size - 1, "the connections to 512 workers");
/// \endcode
/// \throws Error with the limit and the number that is needed.
LOCKSTEP_COLD_DECL void check_file_limit(std::size_t count, std::string_view purpose);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/file_limit.ipp"
#endif
