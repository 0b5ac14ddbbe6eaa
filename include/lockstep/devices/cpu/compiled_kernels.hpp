/// \file
/// Explicit instantiations of the CPU's kernels; see devices/compiled_kernels.hpp.
#pragma once

#include <cstddef>

#include "lockstep/core/numbers/bfloat16.hpp"
#include "lockstep/devices/compiled_kernels.hpp"
#include "lockstep/devices/cpu/elements.hpp"
#include "lockstep/devices/fused_normalization.hpp"
#include "lockstep/devices/fused_relu.hpp"

#define LOCKSTEP_CPU_KERNELS(how, D)                   \
  LOCKSTEP_KERNELS(how, D)                             \
  LOCKSTEP_HOST_OPTIMIZER_KERNELS(how, D)              \
  LOCKSTEP_PASSES(how, D, BatchNormalizationAddReLUOp) \
  LOCKSTEP_PASSES(how, D, BatchNormalizationReLUOp)    \
  LOCKSTEP_PASSES(how, D, ConvReLUOp)                  \
  LOCKSTEP_PASSES(how, D, DenseReLUOp)

// Functions of CpuContext, for each activation type.
#define LOCKSTEP_CPU_LOOPS(how, A) \
  how void detail::add_elements(int, const A*, const A*, A*, std::size_t);

#define LOCKSTEP_CPU_FLOAT_KERNELS(how)     \
  LOCKSTEP_CPU_KERNELS(how, Cpu)            \
  LOCKSTEP_PASSES(how, Cpu, ConvReLUPoolOp) \
  LOCKSTEP_PASSES(how, Cpu, GRUOp<>)        \
  LOCKSTEP_PASSES(how, Cpu, LSTMOp<>)       \
  LOCKSTEP_CPU_LOOPS(how, float)

#define LOCKSTEP_CPU_BFLOAT16_KERNELS(how)                                      \
  LOCKSTEP_CPU_KERNELS(how, CpuBFloat16)                                        \
  LOCKSTEP_CPU_LOOPS(how, bfloat16)                                             \
  how void detail::convert_elements(int, const float*, bfloat16*, std::size_t); \
  how void detail::convert_elements(int, const bfloat16*, float*, std::size_t);
