#pragma once

#include "lockstep/data/sources/data_folder.hpp"

#include <system_error>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/files/file_status.hpp"

namespace lockstep::datasets::detail {

bool has_data_folder(const std::string& folder, const char* name) {
  const FileStatus found = file_status(folder);
  if (found.kind == FileKind::unknown)
    throw FileError(folder, "cannot be read ({}); check its permissions",
                    std::generic_category().message(found.error));
  if (found.kind != FileKind::folder && found.kind != FileKind::missing)
    throw FileError(folder, "is not a folder; pass one with the {} files", name);
  return found.kind == FileKind::folder;
}

void expect_data_folder(const std::string& folder, const char* name, const char* drawn) {
  if (!has_data_folder(folder, name))
    throw FileError(folder,
                    "folder not found; pass one with the {} files, or use {}, which needs no files",
                    name, drawn);
}

bool has_data_folder(const std::string& folder, const char* name, const Splits& fallback) {
  const bool found = has_data_folder(folder, name);
  if (!found)
    log(LogLevel::warning,
        format_text(
            "{}: folder not found; using {} instead of {}; put the real files there to use them",
            folder, fallback.name(), name));
  return found;
}

}  // namespace lockstep::datasets::detail
