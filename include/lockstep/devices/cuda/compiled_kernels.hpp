/// \file
/// The list of GPU kernels in the compiled library (see devices/compiled_kernels.hpp): those of
/// ls::Cuda, ls::CudaBFloat16 and ls::CudaFloat16. Kernels of ls::CudaTf32 are compiled by their
/// users.
#pragma once

#include "lockstep/devices/compiled_kernels.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/fused_normalization.hpp"
#include "lockstep/devices/fused_relu.hpp"

#define LOCKSTEP_CUDA_KERNELS(how, D)                  \
  LOCKSTEP_KERNELS(how, D)                             \
  LOCKSTEP_PASSES(how, D, BatchNormalizationAddReLUOp) \
  LOCKSTEP_PASSES(how, D, BatchNormalizationReLUOp)    \
  LOCKSTEP_PASSES(how, D, ConvReLUOp)                  \
  LOCKSTEP_PASSES(how, D, ConvReLUPoolOp)              \
  LOCKSTEP_PASSES(how, D, DenseReLUOp)
