/// \file
/// All definitions of the component cuda. Include it in exactly one source file of a program whose
/// units all define LOCKSTEP_SEPARATE_COMPILATION; see src.hpp.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error \
    "lockstep/impl/src_cuda.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/collectives/cuda/nccl_communicator.ipp"
#include "lockstep/collectives/cuda/nccl_memory.ipp"
#include "lockstep/devices/cuda/autotuner.ipp"
#include "lockstep/devices/cuda/command.ipp"
#include "lockstep/devices/cuda/commands.ipp"
#include "lockstep/devices/cuda/context.ipp"
#include "lockstep/devices/cuda/cublaslt/matmul.ipp"
#include "lockstep/devices/cuda/cudnn/convolution_plan.ipp"
#include "lockstep/devices/cuda/cudnn/descriptor.ipp"
#include "lockstep/devices/cuda/gpus.ipp"
#include "lockstep/devices/cuda/libraries/driver.ipp"
#include "lockstep/devices/cuda/program.ipp"
#include "lockstep/devices/cuda/support/convolution_call.ipp"

#ifndef LOCKSTEP_IN_PARTS
#include "lockstep/impl/cuda_bfloat16.hpp"
#include "lockstep/impl/cuda_float.hpp"
#include "lockstep/impl/cuda_float16.hpp"
#endif
