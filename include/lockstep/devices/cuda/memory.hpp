/// \file
/// GPU memory and pinned host memory. Invariant: a failed allocation is one sentence with the
/// amount needed and a remedy.
#pragma once

#include <cstddef>

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace lockstep::detail::cuda {

/// Allocates GPU memory, to be freed by cuMemFree. The GPU's context must be current. \throws
/// OutOfMemory.
LOCKSTEP_DECL CUdeviceptr allocate_memory(std::size_t bytes);

/// Page-locked host memory, which the GPU copies asynchronously.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  LOCKSTEP_DECL ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t size() const { return size_; }
  /// Reallocates; the content is lost. \throws OutOfMemory; the buffer is empty then.
  LOCKSTEP_COLD_DECL void grow(std::size_t size);

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/memory.ipp"
#endif
