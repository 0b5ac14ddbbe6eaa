/// \file
/// The options of a job with parameter servers, found as those of workers.hpp.
#pragma once

#include <lockstep/parameter_server.hpp>

#include "support/describe_job.hpp"
#include "support/options.hpp"

namespace support {

/// Applies --cluster, --task, --mode, --staleness and the timeouts.
/// \throws lockstep::ClusterError, lockstep::FileError naming the option or the file.
template <class D, class Plane>
void describe_workers(lockstep::ParameterServer<D, Plane>& strategy, const Options& options) {
  describe_job(strategy, options);
  strategy.asynchronous = options.asynchronous;
  strategy.staleness = options.staleness;
}

}  // namespace support
