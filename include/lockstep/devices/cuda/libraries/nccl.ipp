#pragma once

#include "lockstep/devices/cuda/libraries/nccl.hpp"

namespace lockstep::detail::cuda {

bool Nccl::registers_memory() const {
  return ncclMemAlloc != nullptr && ncclMemFree != nullptr && ncclCommRegister != nullptr &&
         ncclCommDeregister != nullptr;
}

Nccl Nccl::load() {
  const Library library("libnccl.so.2", "install NCCL 2.28 or later for CUDA 13");
  Nccl table;
  LOCKSTEP_CUDA_NCCL(LOCKSTEP_CUDA_FIND)
  LOCKSTEP_CUDA_NCCL_MEMORY(LOCKSTEP_CUDA_FIND_NEWER)
  return table;
}

const Nccl& nccl() { return EntryPoints<Nccl>::get(); }

}  // namespace lockstep::detail::cuda
