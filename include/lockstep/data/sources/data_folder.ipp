#pragma once

#include "lockstep/data/sources/data_folder.hpp"

#include <system_error>

#include "lockstep/core/log.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/files/file_status.hpp"

namespace lockstep::datasets::detail {

bool has_data_folder(const std::string& folder, const char* name) {
  const FileStatus found = file_status(folder);
  if (found.kind == FileKind::unknown)
    throw FileError(folder, {"cannot be read (", std::generic_category().message(found.error),
                             "); check its permissions"});
  if (found.kind != FileKind::folder && found.kind != FileKind::missing)
    throw FileError(folder, {"is not a folder; name one with the ", name, " files"});
  return found.kind == FileKind::folder;
}

void expect_data_folder(const std::string& folder, const char* name, const char* drawn) {
  if (!has_data_folder(folder, name))
    throw FileError(folder, {"there is no such folder; name one with the ", name, " files, or use ",
                             drawn, ", which needs none"});
}

bool has_data_folder(const std::string& folder, const char* name, const Splits& otherwise) {
  const bool found = has_data_folder(folder, name);
  if (!found)
    log(LogLevel::warning, text({folder, ": there is no such folder; using ", otherwise.name(),
                                 " instead of ", name, ", put the files there for real ones"}));
  return found;
}

}  // namespace lockstep::datasets::detail
