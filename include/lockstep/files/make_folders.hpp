/// \file
/// Creation of a folder with its parents (POSIX), without std::filesystem.
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <system_error>

#include "lockstep/core/error.hpp"
#include "lockstep/files/file_status.hpp"

namespace lockstep::detail {

/// Creates the folder `path` and its missing parents; empty: the working directory, which exists.
/// \throws FileError naming the part that cannot be created.
[[gnu::cold]] inline void make_folders(const std::string& path) {
  if (path.empty()) return;
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    const int code = ::mkdir(part.c_str(), 0777) == 0 ? 0 : errno;
    if (code != 0 && file_status(part).kind != FileKind::folder) {
      if (code == EEXIST || code == ENOTDIR)
        throw FileError(part, "a folder is needed here, but it is a file; choose another path");
      throw FileError(part, "the folder cannot be created ({}); choose one that you may write to",
                      std::generic_category().message(code));
    }
    if (slash == path.npos) return;
  }
}

}  // namespace lockstep::detail
