#pragma once

#include "lockstep/devices/cuda/libraries/nvrtc.hpp"

namespace lockstep::detail::cuda {

Nvrtc Nvrtc::load() {
  const Library library(
      "libnvrtc.so.13",
      "install NVRTC from the CUDA toolkit 13, or set CUDA_HOME to the toolkit's folder");
  Nvrtc table;
  LOCKSTEP_CUDA_NVRTC(LOCKSTEP_CUDA_FIND)
  return table;
}

const Nvrtc& nvrtc() { return EntryPoints<Nvrtc>::get(); }

void check(nvrtcResult result, const char* what) {
  if (result != NVRTC_SUCCESS)
    throw DeviceError("cuda: {} failed: {}", what, nvrtc().nvrtcGetErrorString(result));
}

}  // namespace lockstep::detail::cuda
