// libnvrtc.so.13 as a stand-in for NVIDIA's compiler.
#include "host_gpu/exports.hpp"

#define LOCKSTEP_EXPORT_NVRTC(name) LOCKSTEP_HOST_EXPORT(name, nvrtc)
LOCKSTEP_CUDA_NVRTC(LOCKSTEP_EXPORT_NVRTC)
