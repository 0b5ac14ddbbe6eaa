#pragma once

#include "lockstep/collectives/cuda/nccl_memory.hpp"

#include "lockstep/core/format_text.hpp"

namespace lockstep::detail::cuda {

std::byte* NcclMemory::allocate(std::size_t bytes) {
  ++requests_;
  if (nccl().registers_memory()) {
    void* p = nullptr;
    const ncclResult_t result = nccl().ncclMemAlloc(&p, bytes);
    if (result == ncclSuccess) {
      ranges_.push_back({p, bytes});
      return static_cast<std::byte*>(p);
    }
    warn_once("ncclMemAlloc failed: ", nccl().ncclGetErrorString(result));
  } else {
    warn_once("NCCL is older than 2.19", "");
  }
  is_complete_ = false;
  return nullptr;
}

void NcclMemory::free(std::byte* p) noexcept {
  std::erase_if(ranges_, [&](const Range& r) { return r.data == p; });
  nccl().ncclMemFree(p);
}

void NcclMemory::warn_once(const char* why, const char* more) {
  if (!warned.exchange(true))
    log(LogLevel::warning,
        format_text(
            "nccl: gradient memory is not registered: {}{}; NCCL copies gradients through its own "
            "buffers, which is slower",
            why, more));
}

bool NcclRegistrations::add(ncclComm_t communicator, const NcclMemory& memory) {
  if (!memory.is_complete()) return false;
  for (const NcclMemory::Range& range : memory.ranges()) {
    if (std::any_of(handles_.begin(), handles_.end(),
                    [&](auto& r) { return r.first == range.data; }))
      continue;
    void* handle = nullptr;
    const ncclResult_t result =
        nccl().ncclCommRegister(communicator, range.data, range.bytes, &handle);
    if (result != ncclSuccess) {
      NcclMemory::warn_once("ncclCommRegister failed: ", nccl().ncclGetErrorString(result));
      return false;
    }
    handles_.emplace_back(range.data, handle);
  }
  return true;
}

void NcclRegistrations::remove(ncclComm_t communicator, const void* data) {
  std::erase_if(handles_, [&](const auto& r) {
    if (r.first == data) nccl().ncclCommDeregister(communicator, r.second);
    return r.first == data;
  });
}

void NcclRegistrations::remove_all(ncclComm_t communicator) {
  for (const auto& [data, handle] : handles_) nccl().ncclCommDeregister(communicator, handle);
  handles_.clear();
}

}  // namespace lockstep::detail::cuda
