/// \file
/// NVRTC: compilation of CUDA C++ at run time.
#pragma once

#include <nvrtc.h>

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/libraries/library.hpp"

// clang-format off
#define LOCKSTEP_CUDA_NVRTC(entry) \
  entry(nvrtcVersion) \
  entry(nvrtcGetErrorString) \
  entry(nvrtcCreateProgram) \
  entry(nvrtcCompileProgram) \
  entry(nvrtcGetProgramLogSize) \
  entry(nvrtcGetProgramLog) \
  entry(nvrtcGetCUBINSize) \
  entry(nvrtcGetCUBIN) \
  entry(nvrtcDestroyProgram)
// clang-format on

namespace lockstep::detail::cuda {

/// The NVRTC functions that lockstep calls.
struct Nvrtc {
  LOCKSTEP_CUDA_NVRTC(LOCKSTEP_CUDA_MEMBER)

  /// Loads the library. \throws DeviceError if it is missing or too old.
  LOCKSTEP_COLD_DECL static Nvrtc load();
};

/// The loaded table. \throws DeviceError as `load`.
LOCKSTEP_DECL const Nvrtc& nvrtc();

/// \throws DeviceError "cuda: `what` failed: ..." unless the result is success.
LOCKSTEP_DECL void check(nvrtcResult result, const char* what);

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/libraries/nvrtc.ipp"
#endif
