#pragma once

#include "lockstep/files/file_status.hpp"

#include <sys/stat.h>

#include <cerrno>

namespace lockstep {

FileStatus file_status(const std::string& path) {
  struct ::stat s{};
  if (::stat(path.c_str(), &s) != 0) {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    return {missing ? FileKind::missing : FileKind::unknown, 0, errno};
  }
  if (S_ISREG(s.st_mode)) return {FileKind::regular, static_cast<std::uint64_t>(s.st_size), 0};
  return {S_ISDIR(s.st_mode) ? FileKind::folder : FileKind::other, 0, 0};
}

}  // namespace lockstep
