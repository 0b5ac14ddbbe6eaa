/// \file
/// The folder of a data set that is read from files. Invariants: a folder that is missing is an
/// error unless the caller names a substitute; a folder that exists is never replaced.
#pragma once

#include <string>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/sources/splits.hpp"

namespace lockstep::datasets::detail {

/// Whether `folder` exists.
/// \throws FileError if it cannot be examined or is not a folder.
LOCKSTEP_COLD_DECL bool has_data_folder(const std::string& folder, const char* name);

/// \throws FileError unless `folder` exists; `drawn` is the call that needs no files.
LOCKSTEP_COLD_DECL void expect_data_folder(const std::string& folder, const char* name,
                                           const char* drawn);

/// Whether `folder` exists; if not, logs a warning that `otherwise` is used instead.
LOCKSTEP_COLD_DECL bool has_data_folder(const std::string& folder, const char* name,
                                        const Splits& otherwise);

}  // namespace lockstep::datasets::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/data_folder.ipp"
#endif
