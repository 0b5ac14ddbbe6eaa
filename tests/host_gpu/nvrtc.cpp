// libnvrtc.so.13 in place of NVIDIA's compiler.
#include "host_gpu/exports.hpp"

#define LOCKSTEP_EXPORT_NVRTC(name) LOCKSTEP_HOST_EXPORT(name, nvrtc)
LOCKSTEP_CUDA_NVRTC(LOCKSTEP_EXPORT_NVRTC)
