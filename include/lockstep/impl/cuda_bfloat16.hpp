/// \file
/// Part of the component cuda: explicit instantiations of the kernels and the step of
/// ls::CudaBFloat16.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error \
    "lockstep/impl/cuda_bfloat16.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/cuda.hpp"

namespace lockstep {
LOCKSTEP_CUDA_KERNELS(template, CudaBFloat16)
}  // namespace lockstep
