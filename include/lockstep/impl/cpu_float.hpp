/// \file
/// Part of the component cpu: explicit instantiations of the kernels and the step of ls::Cpu.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error \
    "lockstep/impl/cpu_float.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/cpu.hpp"
#include "lockstep/devices/cpu/conv2d.ipp"
#include "lockstep/devices/cpu/conv2d_transpose.ipp"
#include "lockstep/devices/cpu/dense.ipp"
#include "lockstep/devices/cpu/depthwise_conv2d.ipp"
#include "lockstep/devices/cpu/fused/pooled_convolution.hpp"

namespace lockstep {
LOCKSTEP_CPU_FLOAT_KERNELS(template)
LOCKSTEP_STEP(template, Cpu)
}  // namespace lockstep
