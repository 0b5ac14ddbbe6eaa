/// \file
/// The folder of a data set that is read from files. Invariants: a missing folder is an error
/// unless the caller passes a substitute; an existing folder is never replaced by one.
#pragma once

#include <string>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/sources/splits.hpp"

namespace lockstep::datasets::detail {

/// Whether `folder` exists.
/// \throws FileError if its status cannot be read or it is not a folder.
LOCKSTEP_COLD_DECL bool has_data_folder(const std::string& folder, const char* name);

/// \throws FileError unless `folder` exists; the message suggests `drawn`, a call that needs no
/// files.
LOCKSTEP_COLD_DECL void expect_data_folder(const std::string& folder, const char* name,
                                           const char* drawn);

/// Whether `folder` exists. If not, logs a warning that `fallback` is used instead.
LOCKSTEP_COLD_DECL bool has_data_folder(const std::string& folder, const char* name,
                                        const Splits& fallback);

}  // namespace lockstep::datasets::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/data_folder.ipp"
#endif
