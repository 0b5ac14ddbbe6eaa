/// \file
/// A part of the component cuda: the kernels of ls::Cuda.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error \
    "lockstep/impl/cuda_float.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/cuda.hpp"

namespace lockstep {
LOCKSTEP_CUDA_KERNELS(template, Cuda)
}  // namespace lockstep
