/// \file
/// Memory of a GPU, and memory of the host that it copies by itself. Invariant: what is not there
/// is one sentence with what is needed and what to do.
#pragma once

#include <cstddef>

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace lockstep::detail::cuda {

/// With the GPU's context current; ended by cuMemFree. \throws OutOfMemory.
LOCKSTEP_DECL CUdeviceptr allocate_memory(std::size_t bytes);

/// Memory of the host that the GPU copies by itself.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  LOCKSTEP_DECL ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t size() const { return size_; }
  /// What was in it is lost. \throws OutOfMemory; the buffer is empty then.
  LOCKSTEP_COLD_DECL void grow(std::size_t size);

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/memory.ipp"
#endif
