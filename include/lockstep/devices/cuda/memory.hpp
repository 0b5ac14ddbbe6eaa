/// \file
/// GPU memory and pinned host memory. Invariant: a failed allocation is one sentence with the
/// amount needed and a remedy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace lockstep::detail::cuda {

[[noreturn]] inline void throw_out_of_memory(std::size_t bytes) {
  std::size_t free = 0, all = 0;
  driver().cuMemGetInfo(&free, &all);
  throw OutOfMemory(
      bytes, free,
      "cuda: out of memory: {} KiB are needed, {} KiB of {} KiB are free; use a smaller batch, or "
      "end other programs that use the GPU (nvidia-smi lists them)",
      bytes >> 10, free >> 10, all >> 10);
}

[[noreturn]] inline void throw_out_of_pinned_memory(std::size_t bytes) {
  throw OutOfMemory(
      bytes, 0,
      "cuda: out of memory: {} KiB of pinned host memory are needed, and the driver cannot "
      "allocate them; use a smaller batch, end other programs, or raise the container's memory "
      "limit",
      (bytes + 1023) >> 10);
}

/// Allocates GPU memory, to be freed by cuMemFree. The GPU's context must be current. \throws
/// OutOfMemory.
inline CUdeviceptr allocate_memory(std::size_t bytes) {
  CUdeviceptr p = 0;
  // cuMemAlloc rejects 0 bytes; a null pointer would mean "no buffer".
  const CUresult result = driver().cuMemAlloc(&p, std::max<std::size_t>(bytes, 1));
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw_out_of_memory(bytes);
  check(result, "allocating GPU memory");
  return p;
}

/// Page-locked host memory, which the GPU copies asynchronously.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  ~PinnedBuffer() {
    if (data_ != nullptr) driver().cuMemFreeHost(data_);
  }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t size() const { return size_; }
  /// Reallocates; the content is lost. \throws OutOfMemory; the buffer is empty then.
  [[gnu::cold]] void grow(std::size_t size) {
    if (data_ != nullptr) driver().cuMemFreeHost(std::exchange(data_, nullptr));
    size_ = 0;
    void* p = nullptr;
    const CUresult result = driver().cuMemHostAlloc(&p, size, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) throw_out_of_pinned_memory(size);
    check(result, "allocating pinned host memory");
    data_ = p;
    size_ = size;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep::detail::cuda
