/// \file
/// NCCL: collectives between GPUs.
#pragma once

#include <nccl.h>

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
  bool registers_memory() const {
    return ncclMemAlloc != nullptr && ncclMemFree != nullptr && ncclCommRegister != nullptr &&
           ncclCommDeregister != nullptr;
  }

  /// Loads the library. \throws DeviceError if it is missing or too old.
  [[gnu::cold]] static Nccl load() {
    const Library library("libnccl.so.2", "install NCCL 2.28 or later for CUDA 13");
    Nccl table;
    LOCKSTEP_CUDA_NCCL(LOCKSTEP_CUDA_FIND)
    LOCKSTEP_CUDA_NCCL_MEMORY(LOCKSTEP_CUDA_FIND_NEWER)
    return table;
  }
};

/// The loaded table. \throws DeviceError as `load`.
inline const Nccl& nccl() { return EntryPoints<Nccl>::get(); }

}  // namespace lockstep::detail::cuda
