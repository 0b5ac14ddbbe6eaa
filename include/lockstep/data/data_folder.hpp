/// \file
/// The folder of a data set that is read from files. Invariant: a folder that exists is never
/// replaced by drawn examples.
#pragma once

#include <string>
#include <system_error>

#include "lockstep/core/error.hpp"
#include "lockstep/core/file_status.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::datasets {

/// What to do if the folder of a data set is not there.
enum class Missing {
  draw,  ///< draw examples instead, and say so by a warning
  fail   ///< throw FileError
};

namespace detail {

/// Whether `folder` is there; if not, warns that `drawn` stand in for the files of `name`.
/// \throws FileError if it is not there and `missing` is `fail`, or if it is no folder.
[[gnu::cold]] inline bool has_data_folder(const std::string& folder, Missing missing,
                                          const char* name, const char* drawn) {
  const FileStatus found = file_status(folder);
  if (found.kind == FileKind::folder) return true;
  if (found.kind == FileKind::unknown)
    throw FileError(folder, {"cannot be read (", std::generic_category().message(found.error),
                             "); check its permissions"});
  if (found.kind != FileKind::missing)
    throw FileError(folder, {"is not a folder; name one with the ", name, " files"});
  if (missing == Missing::fail)
    throw FileError(folder, {"there is no such folder; name one with the ", name, " files"});
  log(LogLevel::warning, text({folder, ": there is no such folder; training on ", drawn,
                               " instead, put the ", name, " files there for real ones"}));
  return false;
}

}  // namespace detail

}  // namespace lockstep::datasets
