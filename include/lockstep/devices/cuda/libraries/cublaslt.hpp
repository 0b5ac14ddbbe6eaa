/// \file
/// cuBLASLt: matrix products with fused epilogues (bias, ReLU, bias gradient).
#pragma once

#include <cublasLt.h>

#include "lockstep/core/config.hpp"
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
  LOCKSTEP_COLD_DECL static CublasLt load();
};

/// The loaded table. \throws DeviceError as `load`.
LOCKSTEP_DECL const CublasLt& cublaslt();

/// \throws DeviceError "cuda: `what` failed: ..." unless the status is success.
LOCKSTEP_DECL void check(cublasStatus_t status, const char* what);

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/libraries/cublaslt.ipp"
#endif
