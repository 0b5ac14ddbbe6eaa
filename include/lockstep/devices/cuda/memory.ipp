#pragma once

#include "lockstep/devices/cuda/memory.hpp"

#include <algorithm>
#include <utility>

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

CUdeviceptr allocate_memory(std::size_t bytes) {
  CUdeviceptr p = 0;
  // cuMemAlloc rejects 0 bytes; a null pointer would mean "no buffer".
  const CUresult result = driver().cuMemAlloc(&p, std::max<std::size_t>(bytes, 1));
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw_out_of_memory(bytes);
  check(result, "allocating GPU memory");
  return p;
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) driver().cuMemFreeHost(data_);
}

void PinnedBuffer::grow(std::size_t size) {
  if (data_ != nullptr) driver().cuMemFreeHost(std::exchange(data_, nullptr));
  size_ = 0;
  void* p = nullptr;
  const CUresult result = driver().cuMemHostAlloc(&p, size, 0);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw_out_of_pinned_memory(size);
  check(result, "allocating pinned host memory");
  data_ = p;
  size_ = size;
}

}  // namespace lockstep::detail::cuda
