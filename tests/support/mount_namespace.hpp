/// \file
/// Mounts that only one process sees.
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace testing {

/// Gives this process, which must have a single thread, mounts of its own: as root, or as another
/// user in a user namespace. \return false where neither is allowed.
inline bool enter_mount_namespace() {
  const auto mapping = [](auto id) {
    return std::to_string(id) + " " + std::to_string(id) + " 1\n";
  };
  const auto user = mapping(::geteuid()), group = mapping(::getegid());
  const auto write = [](const char* path, const std::string& text) {
    return static_cast<bool>(std::ofstream(path) << text << std::flush);
  };
  bool is_alone = ::unshare(CLONE_NEWNS) == 0;
  if (!is_alone && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0)
    is_alone = write("/proc/self/uid_map", user) && write("/proc/self/setgroups", "deny") &&
               write("/proc/self/gid_map", group);
  return is_alone && ::mount("", "/", "", MS_REC | MS_PRIVATE, nullptr) == 0;
}

}  // namespace testing
