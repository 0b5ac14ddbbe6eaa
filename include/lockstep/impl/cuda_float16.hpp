/// \file
/// Part of the component cuda: explicit instantiations of the kernels and the step of
/// ls::CudaFloat16.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error \
    "lockstep/impl/cuda_float16.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/cuda.hpp"

namespace lockstep {
LOCKSTEP_CUDA_KERNELS(template, CudaFloat16)
}  // namespace lockstep
