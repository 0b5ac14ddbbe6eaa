/// \file
/// A GPU buffer that persists between calls and grows on demand. Invariant: it belongs to a context
/// (CudaContext::handle) and is freed with it.
#pragma once

#include <cstddef>
#include <utility>

#include "lockstep/devices/cuda/context.hpp"

namespace lockstep::detail::cuda {

/// A scratch buffer shared by all users of its type on one GPU.
class GrowingBuffer {
 public:
  GrowingBuffer() = default;
  ~GrowingBuffer() {
    if (memory_ != 0) driver().cuMemFree(memory_);
  }
  GrowingBuffer(const GrowingBuffer&) = delete;
  GrowingBuffer& operator=(const GrowingBuffer&) = delete;

  /// Returns at least `bytes`; growing discards the content and waits for the GPU.
  CUdeviceptr get(CudaContext& context, std::size_t bytes) {
    if (bytes > bytes_) grow(context, bytes);
    return memory_;
  }

 private:
  /// Replaces the memory. \throws OutOfMemory; the buffer is then empty.
  [[gnu::cold]] void grow(CudaContext& context, std::size_t bytes) {
    // Freed first, so that the peak is the new size and not the sum; `release` waits for kernels.
    if (memory_ != 0) context.release(reinterpret_cast<std::byte*>(std::exchange(memory_, 0)), 0);
    bytes_ = 0;
    memory_ = CudaContext::address(context.allocate(bytes));
    bytes_ = bytes;
  }

  CUdeviceptr memory_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep::detail::cuda
