#pragma once

#include "lockstep/strategies/worker_session.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

void check_not_elastic(const Environment& environment, bool can_be) {
  if (!variable(environment, "LOCKSTEP_MIN_WORKERS")) return;
  if (can_be)
    throw UsageError(
        "multi_worker_mirrored: LOCKSTEP_MIN_WORKERS is set, but the program's strategy is not "
        "elastic; write ls::MultiWorkerMirrored<ls::Cpu, ls::Tcp, ls::Elastic> and #include "
        "<lockstep/elastic.hpp>, or unset it");
  throw UsageError(
      "multi_worker_mirrored: LOCKSTEP_MIN_WORKERS needs replicas on CPUs that exchange over "
      "ls::Tcp; unset it, and let the launcher start the job again from its checkpoint "
      "(lockstep-run --max-restarts)");
}

}  // namespace lockstep::detail
