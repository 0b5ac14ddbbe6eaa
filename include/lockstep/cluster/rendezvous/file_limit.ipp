#pragma once

#include "lockstep/cluster/rendezvous/file_limit.hpp"

#include <sys/resource.h>

#include <dirent.h>

#include <cstdint>
#include <memory>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string files_sentence() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return "raise the limit of open files (ulimit -n)";
  return format_text("the process may open {} files; raise the limit (ulimit -n)",
                     static_cast<std::uint64_t>(limit.rlim_cur));
}

/// The number of files that this process has open; 0 if the system does not show it.
inline std::size_t open_files() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
  if (!folder) return 0;
  std::size_t count = 0;
  while (const dirent* entry = ::readdir(folder.get()))
    if (entry->d_name[0] != '.') ++count;
  return count - 1;  // without the one that reads the folder
}

void check_file_limit(std::size_t count, std::string_view purpose) {
  constexpr std::size_t reserve = 16;  // event loops, name resolution, data files, strangers
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const std::size_t open = open_files(), needed = open + count + reserve;
  if (needed <= limit.rlim_cur) return;
  throw Error(
      "{} need {} files in addition to {} that are open and {} in reserve, but this process may "
      "open {}; raise the limit to at least {} (ulimit -n {})",
      purpose, count, open, reserve, static_cast<std::uint64_t>(limit.rlim_cur), needed, needed);
}

}  // namespace lockstep::detail
