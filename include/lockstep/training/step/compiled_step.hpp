/// \file
/// What of a step depends on the device D alone, and is compiled once beside its kernels; see
/// devices/compiled_kernels.hpp.
#pragma once

#include "lockstep/model/engine.hpp"
#include "lockstep/training/step/updates.hpp"

#define LOCKSTEP_STEP(how, D)      \
  how class detail::PlanEngine<D>; \
  how class detail::Updates<D>;
