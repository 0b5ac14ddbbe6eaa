#pragma once

#include "lockstep/devices/cuda/libraries/access.hpp"

namespace lockstep::detail::cuda {

void CudnnLibrary::open(Handle* handle) { check(cudnn().cudnnCreate(handle), "opening cuDNN"); }
void CudnnLibrary::close(Handle handle) { cudnn().cudnnDestroy(handle); }
std::size_t CudnnLibrary::version() { return cudnn().cudnnGetVersion(); }

void CublasLtLibrary::open(Handle* handle) {
  check(cublaslt().cublasLtCreate(handle), "opening cuBLASLt");
}
void CublasLtLibrary::close(Handle handle) { cublaslt().cublasLtDestroy(handle); }
std::size_t CublasLtLibrary::version() { return cublaslt().cublasLtGetVersion(); }

}  // namespace lockstep::detail::cuda
