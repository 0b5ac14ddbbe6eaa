/// \file
/// Elastic jobs: MultiWorkerMirrored with `.elastic`, or LOCKSTEP_MIN_WORKERS. Include lockstep.hpp and
/// cluster.hpp as well.
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/cluster/elastic/elastic_options.hpp"
#include "lockstep/training/elastic/recovering_runs.hpp"
