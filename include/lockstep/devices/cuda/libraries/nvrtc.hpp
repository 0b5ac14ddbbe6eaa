/// \file
/// NVRTC: the compiler of CUDA C++ at run time.
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

/// The compiler's functions that lockstep calls.
struct Nvrtc {
  LOCKSTEP_CUDA_NVRTC(LOCKSTEP_CUDA_MEMBER)

  /// \throws DeviceError if the library is missing or too old.
  [[gnu::cold]] static Nvrtc load() {
    const Library library(
        "libnvrtc.so.13",
        "install the CUDA toolkit 13 (its part NVRTC), or set CUDA_HOME to where it is");
    Nvrtc table;
    LOCKSTEP_CUDA_NVRTC(LOCKSTEP_CUDA_FIND)
    return table;
  }
};

inline const Nvrtc& nvrtc() { return EntryPoints<Nvrtc>::get(); }

/// \throws DeviceError that says what failed.
inline void check(nvrtcResult result, const char* what) {
  if (result != NVRTC_SUCCESS)
    throw DeviceError({"cuda: ", what, " failed: ", nvrtc().nvrtcGetErrorString(result)});
}

}  // namespace lockstep::detail::cuda
