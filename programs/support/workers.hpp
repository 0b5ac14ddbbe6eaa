/// \file
/// The options about the other processes of the job. strategy.hpp finds describe_workers by
/// argument-dependent lookup, so a program of one process does not include the cluster.
#pragma once

#include <lockstep/cluster.hpp>
#include <lockstep/elastic.hpp>
#include <string>
#include <type_traits>

#include "support/describe_job.hpp"
#include "support/options.hpp"

namespace support {

/// Applies --cluster, --task, --elastic and the timeouts.
/// \throws lockstep::ClusterError, lockstep::FileError, lockstep::UsageError naming the option or the
/// file.
template <class D, class Plane, class Membership>
void describe_workers(lockstep::MultiWorkerMirrored<D, Plane, Membership>& strategy,
                      const Options& options) {
  describe_job(strategy, options);
  const bool is_local = options.update == "local" || options.update == "diloco";
  if (is_local || options.wire != "float32") {
    const std::string why =
        is_local ? "with --update " + options.update +
                       " a worker that dies takes its part of the optimizer's state along"
                 : "with --wire " + options.wire +
                       " a worker that dies takes the gradients along that it has not sent";
    constexpr const char* instead =
        "and let the launcher start the job again from its checkpoint (lockstep-run "
        "--max-restarts)";
    if (options.min_workers > 0)
      throw lockstep::UsageError("--min-workers {}: {}; leave it out, {}", options.min_workers, why,
                                 instead);
    if (lockstep::detail::variable(strategy.environment, "LOCKSTEP_MIN_WORKERS"))
      throw lockstep::UsageError("LOCKSTEP_MIN_WORKERS is set: {}; unset it, {}", why, instead);
  }
  if constexpr (std::is_same_v<Membership, lockstep::Elastic>)
    strategy.elastic.min_workers = options.min_workers;
  else if (options.min_workers > 0)
    throw lockstep::UsageError(
        "--elastic {}: a job goes on after a loss on CPUs only; leave it out, and let the "
        "launcher start the job again from its checkpoint (lockstep-run --max-restarts)",
        options.min_workers);
}

}  // namespace support
