/// \file
/// Replicas that synchronise only after several steps: the update policies LocalSgd and DiLoCo.
/// Include lockstep.hpp and a device as well, and cluster.hpp for several processes.
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/strategies/updated_by.hpp"
#include "lockstep/training/step/local.hpp"
