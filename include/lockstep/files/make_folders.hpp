/// \file
/// Creation of a folder with its parents (POSIX), without std::filesystem.
#pragma once

#include <string>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Creates the folder `path` and its missing parents; empty: the working directory, which exists.
/// \throws FileError naming the part that cannot be created.
LOCKSTEP_COLD_DECL void make_folders(const std::string& path);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/files/make_folders.ipp"
#endif
