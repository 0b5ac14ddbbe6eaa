/// \file
/// The CPU quota of the process' control groups, in cores. A container with `--cpus=2` on 64 cores
/// may run on all of them, but only for two cores' time per period: with more computing threads the
/// kernel throttles all of them for most of each period.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// `cores`: the smallest quota of the process' group and its ancestors, rounded up. `group`: inode
/// of the group that sets it, which identifies processes of a machine that share the quota.
struct CpuQuota {
  int cores = 0;
  ino_t group = 0;
};

/// Reads the quota from the files of control groups, version 1 and 2; empty if no group limits the
/// process. `root` is prepended to each path; "" reads the files of the system.
LOCKSTEP_COLD_DECL std::optional<CpuQuota> read_cpu_quota(const std::string& root = "");

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/process/cpu_quota.ipp"
#endif
