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

/// NCCL's functions that lockstep calls.
struct Nccl {
  LOCKSTEP_CUDA_NCCL(LOCKSTEP_CUDA_MEMBER)
  LOCKSTEP_CUDA_NCCL_MEMORY(LOCKSTEP_CUDA_MEMBER)  // null before 2.19

  LOCKSTEP_DECL bool registers_memory() const;

  /// \throws DeviceError if the library is missing or too old.
  LOCKSTEP_COLD_DECL static Nccl load();
};

LOCKSTEP_DECL const Nccl& nccl();

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/libraries/nccl.ipp"
#endif
