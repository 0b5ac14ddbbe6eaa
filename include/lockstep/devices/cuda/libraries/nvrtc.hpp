/// \file
/// NVRTC: compilation of CUDA C++ at run time.
#pragma once

#include <nvrtc.h>

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
  [[gnu::cold]] static Nvrtc load() {
    const Library library(
        "libnvrtc.so.13",
        "install NVRTC from the CUDA toolkit 13, or set CUDA_HOME to the toolkit's folder");
    Nvrtc table;
    LOCKSTEP_CUDA_NVRTC(LOCKSTEP_CUDA_FIND)
    return table;
  }
};

/// The loaded table. \throws DeviceError as `load`.
inline const Nvrtc& nvrtc() { return EntryPoints<Nvrtc>::get(); }

/// \throws DeviceError "cuda: `what` failed: ..." unless the result is success.
inline void check(nvrtcResult result, const char* what) {
  if (result != NVRTC_SUCCESS)
    throw DeviceError("cuda: {} failed: {}", what, nvrtc().nvrtcGetErrorString(result));
}

}  // namespace lockstep::detail::cuda
