/// \file
/// What of a step depends on the device D alone, and is compiled once beside its kernels; see
/// devices/compiled_kernels.hpp.
#pragma once

#include <cstdint>

#include "lockstep/model/engine.hpp"
#include "lockstep/training/step/device_replica.hpp"
#include "lockstep/training/step/updates.hpp"

#define LOCKSTEP_STEP(how, D)                       \
  how class detail::PlanEngine<D>;                  \
  how class detail::Updates<D>;                     \
  how class detail::DeviceReplica<D, std::int32_t>; \
  how class detail::DeviceReplica<D, D::real>;
