#pragma once

#include "lockstep/devices/cuda/libraries/cublaslt.hpp"

namespace lockstep::detail::cuda {

CublasLt CublasLt::load() {
  const Library library(
      "libcublasLt.so.13",
      "install cuBLAS from the CUDA toolkit 13, or set CUDA_HOME to the toolkit's folder");
  CublasLt table;
  LOCKSTEP_CUDA_CUBLASLT(LOCKSTEP_CUDA_FIND)
  return table;
}

const CublasLt& cublaslt() { return EntryPoints<CublasLt>::get(); }

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw DeviceError("cuda: {} failed: {}", what, cublaslt().cublasLtGetStatusString(status));
}

}  // namespace lockstep::detail::cuda
