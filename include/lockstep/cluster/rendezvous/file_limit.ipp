#pragma once

#include "lockstep/cluster/rendezvous/file_limit.hpp"

#include <sys/resource.h>

#include <cstdint>

#include "lockstep/core/fmt_core.hpp"

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
  return fmt::format("the process may open {} files; raise the limit (ulimit -n)",
                     static_cast<std::uint64_t>(limit.rlim_cur));
}

}  // namespace lockstep::detail
