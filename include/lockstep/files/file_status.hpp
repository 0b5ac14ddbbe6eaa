/// \file
/// What lies at a path (POSIX). Invariant: links are followed. The standard's <filesystem> would
/// cost each including file a third of a second of compile time.
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <string>

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
[[gnu::cold]] inline FileStatus file_status(const std::string& path) {
  struct ::stat s{};
  if (::stat(path.c_str(), &s) != 0) {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    return {missing ? FileKind::missing : FileKind::unknown, 0, errno};
  }
  if (S_ISREG(s.st_mode)) return {FileKind::regular, static_cast<std::uint64_t>(s.st_size), 0};
  return {S_ISDIR(s.st_mode) ? FileKind::folder : FileKind::other, 0, 0};
}

}  // namespace lockstep
