/// \file
/// The classes of a step that depend on the device D but not on the model. In the compiled form
/// they are instantiated once, in the same unit as the device's kernels; see
/// devices/compiled_kernels.hpp.
#pragma once

#include <cstdint>

#include "lockstep/model/engine.hpp"
#include "lockstep/training/step/device_replica.hpp"
#include "lockstep/training/step/replicated.hpp"
#include "lockstep/training/step/updates.hpp"

/// \def LOCKSTEP_STEP(how, D)
/// Explicit instantiations for device D; `how` is `extern template` or `template`.
#define LOCKSTEP_STEP(how, D)            \
  how class detail::PlanEngine<D>;       \
  how class detail::Updates<D>;          \
  how class detail::ReplicatedUpdate<D>; \
  how class detail::DeviceReplica<D>;
