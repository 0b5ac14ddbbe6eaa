#pragma once

#include "lockstep/devices/cuda/libraries/cudnn.hpp"

namespace lockstep::detail::cuda {

Cudnn Cudnn::load() {
  const Library library("libcudnn.so.9",
                        "install cuDNN 9 for CUDA 13, or set CUDA_HOME to its folder");
  Cudnn table;
  LOCKSTEP_CUDA_CUDNN(LOCKSTEP_CUDA_FIND)
  return table;
}

const Cudnn& cudnn() { return EntryPoints<Cudnn>::get(); }

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> last{};
  cudnn().cudnnGetLastErrorString(last.data(), last.size());
  throw DeviceError("cuda: {} failed: {} ({})", what, cudnn().cudnnGetErrorString(status),
                    last.data());
}

}  // namespace lockstep::detail::cuda
