/// \file
/// NCCL: collectives between GPUs.
#pragma once

#include <nccl.h>

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/libraries/library.hpp"

// clang-format off
#define LOCKSTEP_CUDA_NCCL(entry) \
  entry(ncclGetErrorString) \
  entry(ncclGetLastError) \
  entry(ncclGetUniqueId) \
  entry(ncclCommInitRankConfig) \
  entry(ncclCommGetAsyncError) \
  entry(ncclCommAbort) \
  entry(ncclCommDestroy) \
  entry(ncclAllReduce) \
  entry(ncclBroadcast) \
  entry(ncclAllGather) \
  entry(ncclGroupStart) \
  entry(ncclGroupEnd)
#define LOCKSTEP_CUDA_NCCL_MEMORY(entry) \
  entry(ncclMemAlloc) \
  entry(ncclMemFree) \
  entry(ncclCommRegister) \
  entry(ncclCommDeregister)
// clang-format on

namespace lockstep::detail::cuda {

/// The NCCL functions that lockstep calls.
struct Nccl {
  LOCKSTEP_CUDA_NCCL(LOCKSTEP_CUDA_MEMBER)
  LOCKSTEP_CUDA_NCCL_MEMORY(LOCKSTEP_CUDA_MEMBER)  // null before 2.19

  /// Whether NCCL can allocate and register buffers (2.19 and later).
  LOCKSTEP_DECL bool registers_memory() const;

  /// Loads the library. \throws DeviceError if it is missing or too old.
  LOCKSTEP_COLD_DECL static Nccl load();
};

/// The loaded table. \throws DeviceError as `load`.
LOCKSTEP_DECL const Nccl& nccl();

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/libraries/nccl.ipp"
#endif
