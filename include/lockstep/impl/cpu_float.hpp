/// \file
/// Part of the component cpu: explicit instantiations of the kernels and the step of ls::Cpu.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error \
    "lockstep/impl/cpu_float.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/cpu.hpp"

namespace lockstep {
LOCKSTEP_CPU_FLOAT_KERNELS(template)
LOCKSTEP_STEP(template, Cpu)
}  // namespace lockstep
