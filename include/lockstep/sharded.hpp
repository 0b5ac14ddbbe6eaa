/// \file
/// Optimizer state divided among the replicas: the update policy Sharded. Include lockstep.hpp and a
/// device as well, and cluster.hpp for several processes.
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/strategies/updated_by.hpp"
#include "lockstep/training/step/sharded.hpp"
