/// \file
/// Part of the component cpu: explicit instantiations of the kernels and the step of
/// ls::CpuBFloat16.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error \
    "lockstep/impl/cpu_bfloat16.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/cpu.hpp"
#include "lockstep/devices/cpu/conv2d.ipp"
#include "lockstep/devices/cpu/conv2d_transpose.ipp"
#include "lockstep/devices/cpu/dense.ipp"
#include "lockstep/devices/cpu/depthwise_conv2d.ipp"

namespace lockstep {
LOCKSTEP_CPU_BFLOAT16_KERNELS(template)
LOCKSTEP_STEP(template, CpuBFloat16)
}  // namespace lockstep
