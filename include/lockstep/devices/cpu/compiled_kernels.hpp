/// \file
/// The kernels of the CPU that are compiled once, see devices/compiled_kernels.hpp.
#pragma once

#include "lockstep/devices/compiled_kernels.hpp"
#include "lockstep/devices/fused_normalization.hpp"
#include "lockstep/devices/fused_relu.hpp"

#define LOCKSTEP_CPU_KERNELS(how, D)                   \
  LOCKSTEP_KERNELS(how, D)                             \
  LOCKSTEP_PASSES(how, D, BatchNormalizationAddReLUOp) \
  LOCKSTEP_PASSES(how, D, BatchNormalizationReLUOp)    \
  LOCKSTEP_PASSES(how, D, ConvReLUOp)                  \
  LOCKSTEP_PASSES(how, D, DenseReLUOp)

#define LOCKSTEP_CPU_FLOAT_KERNELS(how) \
  LOCKSTEP_CPU_KERNELS(how, Cpu)        \
  LOCKSTEP_PASSES(how, Cpu, ConvReLUPoolOp)
#define LOCKSTEP_CPU_BFLOAT16_KERNELS(how) LOCKSTEP_CPU_KERNELS(how, CpuBFloat16)
