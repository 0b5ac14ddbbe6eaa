/// \file
/// cuBLASLt: matrix products with fused epilogues (bias, ReLU, bias gradient).
#pragma once

#include <cublasLt.h>

#include "lockstep/devices/cuda/libraries/library.hpp"

// clang-format off
#define LOCKSTEP_CUDA_CUBLASLT(entry) \
  entry(cublasLtCreate) \
  entry(cublasLtDestroy) \
  entry(cublasLtGetStatusString) \
  entry(cublasLtGetVersion) \
  entry(cublasLtMatmul) \
  entry(cublasLtMatmulDescCreate) \
  entry(cublasLtMatmulDescDestroy) \
  entry(cublasLtMatmulDescSetAttribute) \
  entry(cublasLtMatrixLayoutCreate) \
  entry(cublasLtMatrixLayoutDestroy) \
  entry(cublasLtMatmulPreferenceCreate) \
  entry(cublasLtMatmulPreferenceDestroy) \
  entry(cublasLtMatmulPreferenceSetAttribute) \
  entry(cublasLtMatmulAlgoGetHeuristic) \
  entry(cublasLtMatmulAlgoCheck)
// clang-format on

namespace lockstep::detail::cuda {

/// The cuBLASLt functions that lockstep calls.
struct CublasLt {
  LOCKSTEP_CUDA_CUBLASLT(LOCKSTEP_CUDA_MEMBER)

  /// Loads the library. \throws DeviceError if it is missing or too old.
  [[gnu::cold]] static CublasLt load() {
    const Library library(
        "libcublasLt.so.13",
        "install cuBLAS from the CUDA toolkit 13, or set CUDA_HOME to the toolkit's folder");
    CublasLt table;
    LOCKSTEP_CUDA_CUBLASLT(LOCKSTEP_CUDA_FIND)
    return table;
  }
};

/// The loaded table. \throws DeviceError as `load`.
inline const CublasLt& cublaslt() { return EntryPoints<CublasLt>::get(); }

/// \throws DeviceError "cuda: `what` failed: ..." unless the status is success.
inline void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw DeviceError("cuda: {} failed: {}", what, cublaslt().cublasLtGetStatusString(status));
}

}  // namespace lockstep::detail::cuda
