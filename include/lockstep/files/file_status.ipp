#pragma once

#include "lockstep/files/file_status.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <string_view>

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

namespace detail {

bool names_open_file(std::string path) {
  constexpr int most_links = 40;  // of the kernel
  for (int i = 0; i < most_links; ++i) {
    const std::size_t slash = path.rfind('/');
    const std::string folder = slash == path.npos ? "." : path.substr(0, slash + 1);
    char* const real = ::realpath(folder.c_str(), nullptr);
    const std::string place = real == nullptr ? "" : real;
    std::free(real);
    if (place.starts_with("/proc/") && place.ends_with("/fd")) return true;
    char target[4096];
    const ssize_t n = ::readlink(path.c_str(), target, sizeof target);
    if (n <= 0 || n == sizeof target) return false;
    const std::string_view next(target, static_cast<std::size_t>(n));
    path = next.starts_with('/') ? std::string(next) : folder + "/" + std::string(next);
  }
  return false;
}

}  // namespace detail
}  // namespace lockstep
