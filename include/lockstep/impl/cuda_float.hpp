/// \file
/// Part of the component cuda: explicit instantiations of the kernels and the step of ls::Cuda.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error \
    "lockstep/impl/cuda_float.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/cuda.hpp"

namespace lockstep {
LOCKSTEP_CUDA_KERNELS(template, Cuda)
}  // namespace lockstep
