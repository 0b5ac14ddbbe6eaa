/// \file
/// cuDNN 9: convolutions, through its graph of backend descriptors.
#pragma once

#include <cudnn.h>

#include <array>

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/libraries/library.hpp"

// clang-format off
#define LOCKSTEP_CUDA_CUDNN(entry) \
  entry(cudnnGetVersion) \
  entry(cudnnGetErrorString) \
  entry(cudnnGetLastErrorString) \
  entry(cudnnCreate) \
  entry(cudnnDestroy) \
  entry(cudnnSetStream) \
  entry(cudnnBackendCreateDescriptor) \
  entry(cudnnBackendDestroyDescriptor) \
  entry(cudnnBackendSetAttribute) \
  entry(cudnnBackendGetAttribute) \
  entry(cudnnBackendFinalize) \
  entry(cudnnBackendExecute)
// clang-format on

namespace lockstep::detail::cuda {

/// cuDNN's functions that lockstep calls.
struct Cudnn {
  LOCKSTEP_CUDA_CUDNN(LOCKSTEP_CUDA_MEMBER)

  /// \throws DeviceError if the library is missing or too old.
  LOCKSTEP_COLD_DECL static Cudnn load();
};

LOCKSTEP_DECL const Cudnn& cudnn();

/// \throws DeviceError that says what failed.
LOCKSTEP_DECL void check(cudnnStatus_t status, const char* what);

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/libraries/cudnn.ipp"
#endif
