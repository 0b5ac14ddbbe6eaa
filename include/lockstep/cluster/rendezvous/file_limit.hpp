/// \file
/// How many files the process may open: each member of a job is a connection at the chief, and each
/// pair of members one more.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <string>

#include "lockstep/core/text.hpp"

namespace lockstep::detail {

/// Raises the soft limit to the hard one, where the system allows it.
inline void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

/// "the process may open 1024 files; raise the limit (ulimit -n)".
inline std::string files_sentence() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return "raise the limit of open files (ulimit -n)";
  return text({"the process may open ", static_cast<std::uint64_t>(limit.rlim_cur),
               " files; raise the limit (ulimit -n)"});
}

}  // namespace lockstep::detail
