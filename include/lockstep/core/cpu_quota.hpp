/// \file
/// The CPU time that control groups allow this process, in cores. A container with `--cpus=2` on 64
/// cores may run on all of them, but only for two cores' time: more computing threads than that are
/// stopped for most of each period.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// `cores`: the smallest quota of the process' group and the groups above it, rounded up. `group`:
/// the inode of the group that sets it, equal for all processes of a machine that share it.
struct CpuQuota {
  int cores = 0;
  ino_t group = 0;
};

/// From the files of control groups, versions 1 and 2; nothing if no group limits the process.
/// `root`: before each path, "" for those of the system.
LOCKSTEP_COLD_DECL std::optional<CpuQuota> read_cpu_quota(const std::string& root = "");

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/cpu_quota.ipp"
#endif
