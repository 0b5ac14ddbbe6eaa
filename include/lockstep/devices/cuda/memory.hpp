/// \file
/// Memory of a GPU, and memory of the host that it copies by itself. Invariant: what is not there
/// is one sentence with what is needed and what to do.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace lockstep::detail::cuda {

[[noreturn, gnu::cold]] inline void refuse_memory(std::size_t bytes) {
  std::size_t free = 0, all = 0;
  driver().cuMemGetInfo(&free, &all);
  throw OutOfMemory(
      bytes, free,
      {"cuda: out of memory: ", bytes >> 10, " KiB are needed, ", free >> 10, " KiB of ", all >> 10,
       " KiB are free; use a smaller batch, or end other programs that use the "
       "GPU (nvidia-smi lists them)"});
}
[[noreturn, gnu::cold]] inline void refuse_pinned_memory(std::size_t bytes) {
  throw OutOfMemory(bytes, 0,
                    {"cuda: out of memory: ", (bytes + 1023) >> 10,
                     " KiB of pinned memory of the host are needed, and the driver gets none; use "
                     "a smaller batch, end other programs, or raise the container's limit of "
                     "memory"});
}

/// With the GPU's context current; ended by cuMemFree. \throws OutOfMemory.
inline CUdeviceptr take_memory(std::size_t bytes) {
  CUdeviceptr p = 0;
  const CUresult result = driver().cuMemAlloc(&p, std::max<std::size_t>(bytes, 1));
  if (result == CUDA_ERROR_OUT_OF_MEMORY) refuse_memory(bytes);
  check(result, "taking memory of the GPU");
  return p;
}

/// Memory of the host that the GPU copies by itself.
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
  /// What was in it is lost. \throws OutOfMemory; the buffer is empty then.
  [[gnu::cold]] void grow(std::size_t size) {
    if (data_ != nullptr) driver().cuMemFreeHost(std::exchange(data_, nullptr));
    size_ = 0;
    void* p = nullptr;
    const CUresult result = driver().cuMemHostAlloc(&p, size, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) refuse_pinned_memory(size);
    check(result, "taking pinned memory of the host");
    data_ = p;
    size_ = size;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep::detail::cuda
