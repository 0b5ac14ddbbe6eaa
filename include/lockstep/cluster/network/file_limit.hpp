/// \file
/// The limit of open files. Each member is a connection of the chief, and each peer with which a
/// process exchanges data is one more. Invariant: a limit that is too small is reported, with the
/// number that is needed, before the process waits for others.
#pragma once

#include <dirent.h>
#include <sys/resource.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

/// The number of files that this process has open; 0 if the system does not show it.
inline std::size_t open_files() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
  if (!folder) return 0;
  std::size_t count = 0;
  while (const dirent* entry = ::readdir(folder.get()))
    if (entry->d_name[0] != '.') ++count;
  return count - 1;  // without the one that reads the folder
}

/// Raises the soft limit to the hard limit if the system allows it.
[[gnu::cold]] inline void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

/// For messages: "the process may open 1024 files; raise the limit (ulimit -n)".
[[gnu::cold]] inline std::string files_sentence() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return "raise the limit of open files (ulimit -n)";
  return format_text("the process may open {} files; raise the limit (ulimit -n)",
                     static_cast<std::uint64_t>(limit.rlim_cur));
}

/// Checks that this process may open `count` more files, and a few for other purposes. `purpose`
/// completes the message: "512 workers".
/// \code
///   check_file_limit(size - 1, "the connections to 512 workers");
/// \endcode
/// \throws Error with the limit and the number that is needed.
[[gnu::cold]] inline void check_file_limit(std::size_t count, std::string_view purpose) {
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
