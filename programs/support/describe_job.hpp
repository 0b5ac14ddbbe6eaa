/// \file
/// The options about the job that all strategies of several processes have.
#pragma once

#include <lockstep/cluster.hpp>

#include "support/options.hpp"

namespace support {

/// Applies --cluster, --task, --stragglers and the timeouts.
/// \throws lockstep::ClusterError, lockstep::FileError naming the option or the file.
template <class Strategy>
void describe_job(Strategy& strategy, const Options& options) {
  if (options.cluster) {
    strategy.cluster.cluster = lockstep::read_cluster_file(*options.cluster);
    strategy.cluster.cluster_name = "--cluster " + *options.cluster;
  }
  if (options.task) strategy.cluster.task = lockstep::parse_task(*options.task, "--task");
  strategy.cluster.task_name = "--task";
  strategy.cluster.options = "--cluster FILE and --task worker:0";
  strategy.stragglers = options.stragglers;
  strategy.stall_limits = {.stall = options.stall_timeout, .idle = options.idle_timeout};
}

}  // namespace support
