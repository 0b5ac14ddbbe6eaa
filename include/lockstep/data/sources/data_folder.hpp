/// \file
/// The folder of a data set that is read from files. Invariants: a folder that is missing is an
/// error unless the caller names a substitute; a folder that exists is never replaced.
#pragma once

#include <string>
#include <system_error>

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/sources/splits.hpp"
#include "lockstep/files/file_status.hpp"

namespace lockstep::datasets::detail {

/// Whether `folder` exists.
/// \throws FileError if it cannot be examined or is not a folder.
[[gnu::cold]] inline bool has_data_folder(const std::string& folder, const char* name) {
  const FileStatus found = file_status(folder);
  if (found.kind == FileKind::unknown)
    throw FileError(folder, {"cannot be read (", std::generic_category().message(found.error),
                             "); check its permissions"});
  if (found.kind != FileKind::folder && found.kind != FileKind::missing)
    throw FileError(folder, {"is not a folder; name one with the ", name, " files"});
  return found.kind == FileKind::folder;
}

/// \throws FileError unless `folder` exists; `drawn` is the call that needs no files.
[[gnu::cold]] inline void expect_data_folder(const std::string& folder, const char* name,
                                             const char* drawn) {
  if (!has_data_folder(folder, name))
    throw FileError(folder, {"there is no such folder; name one with the ", name, " files, or use ",
                             drawn, ", which needs none"});
}

/// Whether `folder` exists; if not, logs a warning that `otherwise` is used instead.
[[gnu::cold]] inline bool has_data_folder(const std::string& folder, const char* name,
                                          const Splits& otherwise) {
  const bool found = has_data_folder(folder, name);
  if (!found)
    log(LogLevel::warning, text({folder, ": there is no such folder; using ", otherwise.name(),
                                 " instead of ", name, ", put the files there for real ones"}));
  return found;
}

}  // namespace lockstep::datasets::detail
