/// \file
/// cuBLASLt: matrix products with what follows them.
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

/// cuBLASLt's functions that lockstep calls.
struct CublasLt {
  LOCKSTEP_CUDA_CUBLASLT(LOCKSTEP_CUDA_MEMBER)

  /// \throws DeviceError if the library is missing or too old.
  [[gnu::cold]] static CublasLt load() {
    const Library library(
        "libcublasLt.so.13",
        "install the CUDA toolkit 13 (its part cuBLAS), or set CUDA_HOME to where it is");
    CublasLt table;
    LOCKSTEP_CUDA_CUBLASLT(LOCKSTEP_CUDA_FIND)
    return table;
  }
};

inline const CublasLt& cublaslt() { return EntryPoints<CublasLt>::get(); }

/// \throws DeviceError that says what failed.
inline void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw DeviceError({"cuda: ", what, " failed: ", cublaslt().cublasLtGetStatusString(status)});
}

}  // namespace lockstep::detail::cuda
