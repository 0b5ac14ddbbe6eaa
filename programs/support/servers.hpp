/// \file
/// The options of a job with parameter servers, found as those of workers.hpp.
#pragma once

#include <lockstep/elastic.hpp>
#include <lockstep/parameter_server.hpp>

#include "support/describe_job.hpp"
#include "support/options.hpp"

namespace support {

/// Applies --cluster, --task, --mode, --staleness, --backup-workers, --elastic, --ps-replicas and the
/// timeouts.
/// \throws lockstep::ClusterError, lockstep::FileError naming the option or the file.
template <class D, class Plane>
void describe_workers(lockstep::ParameterServer<D, Plane, lockstep::Elastic>& strategy,
                      const Options& options) {
  describe_job(strategy, options);
  strategy.asynchronous = options.asynchronous;
  strategy.staleness = options.staleness;
  strategy.backup_workers = options.backup_workers;
  strategy.replicas = options.server_replicas;
  strategy.elastic.min_workers = options.min_workers;
  // A worker that dies leaves an asynchronous job, unless its user has another number in mind.
  const bool is_given =
      options.min_workers > 0 || strategy.environment("LOCKSTEP_MIN_WORKERS").has_value();
  if (options.asynchronous && !is_given) strategy.elastic.min_workers = 1;
}

}  // namespace support
