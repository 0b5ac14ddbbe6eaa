/// \file
/// What lies at a path (POSIX). Invariant: links are followed. The standard's <filesystem> would
/// cost each including file a third of a second of compile time.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/core/config.hpp"

namespace lockstep {

/// `unknown`: it could not be asked; `error` is then the reason, as in errno.
enum class FileKind : std::uint8_t { missing, regular, folder, other, unknown };

/// What `file_status` found.
struct FileStatus {
  FileKind kind = FileKind::unknown;
  std::uint64_t size = 0;  ///< bytes, of a regular file
  int error = 0;
};

/// \code
///   if (lockstep::file_status("data/mnist").kind == lockstep::FileKind::folder) ...
/// \endcode
LOCKSTEP_COLD_DECL FileStatus file_status(const std::string& path);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/files/file_status.ipp"
#endif
