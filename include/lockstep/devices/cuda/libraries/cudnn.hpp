/// \file
/// cuDNN 9: convolutions, described as graphs of backend descriptors.
#pragma once

#include <cudnn.h>

#include <array>

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
  [[gnu::cold]] static Cudnn load() {
    const Library library("libcudnn.so.9",
                          "install cuDNN 9 for CUDA 13, or set CUDA_HOME to its folder");
    Cudnn table;
    LOCKSTEP_CUDA_CUDNN(LOCKSTEP_CUDA_FIND)
    return table;
  }
};

/// The loaded table. \throws DeviceError as `load`.
inline const Cudnn& cudnn() { return EntryPoints<Cudnn>::get(); }

/// \throws DeviceError "cuda: `what` failed: ..." unless the status is success.
inline void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> last{};
  cudnn().cudnnGetLastErrorString(last.data(), last.size());
  throw DeviceError("cuda: {} failed: {} ({})", what, cudnn().cudnnGetErrorString(status),
                    last.data());
}

}  // namespace lockstep::detail::cuda
