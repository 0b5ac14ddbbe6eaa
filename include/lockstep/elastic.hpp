/// \file
/// Elastic jobs: MultiWorkerMirrored<ls::Cpu, ls::Tcp, ls::Elastic>. Include lockstep.hpp and cluster.hpp
/// as well.
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/cluster/description/elastic_options.hpp"
#include "lockstep/strategies/elastic_session.hpp"
#include "lockstep/training/elastic/recovering_runs.hpp"
#include "lockstep/training/step/recoverable.hpp"
