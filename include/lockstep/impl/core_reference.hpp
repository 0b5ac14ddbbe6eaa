/// \file
/// Part of the component core: explicit instantiations of the kernels and the step of the reference
/// device.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error \
    "lockstep/impl/core_reference.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/reference.hpp"

namespace lockstep {
LOCKSTEP_KERNELS(template, Reference<float>)
LOCKSTEP_HOST_OPTIMIZER_KERNELS(template, Reference<float>)
LOCKSTEP_STEP(template, Reference<float>)
LOCKSTEP_KERNELS(template, Reference<double>)
LOCKSTEP_HOST_OPTIMIZER_KERNELS(template, Reference<double>)
LOCKSTEP_STEP(template, Reference<double>)
}  // namespace lockstep
