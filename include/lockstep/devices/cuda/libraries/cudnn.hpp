/// \file
/// cuDNN 9: convolutions, described as graphs of backend descriptors.
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

/// The cuDNN functions that lockstep calls.
struct Cudnn {
  LOCKSTEP_CUDA_CUDNN(LOCKSTEP_CUDA_MEMBER)

  /// Loads the library. \throws DeviceError if it is missing or too old.
  LOCKSTEP_COLD_DECL static Cudnn load();
};

/// The loaded table. \throws DeviceError as `load`.
LOCKSTEP_DECL const Cudnn& cudnn();

/// \throws DeviceError "cuda: `what` failed: ..." unless the status is success.
LOCKSTEP_DECL void check(cudnnStatus_t status, const char* what);

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/libraries/cudnn.ipp"
#endif
