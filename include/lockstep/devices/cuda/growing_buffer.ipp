#pragma once

#include "lockstep/devices/cuda/growing_buffer.hpp"

namespace lockstep::detail::cuda {

GrowingBuffer::~GrowingBuffer() {
  if (memory_ != 0) driver().cuMemFree(memory_);
}

CUdeviceptr GrowingBuffer::get(CudaContext& context, std::size_t bytes) {
  if (bytes > bytes_) grow(context, bytes);
  return memory_;
}

void GrowingBuffer::grow(CudaContext& context, std::size_t bytes) {
  // Freed first, so that the peak is the new size and not the sum; `release` waits for kernels.
  if (memory_ != 0) context.release(reinterpret_cast<std::byte*>(std::exchange(memory_, 0)), 0);
  bytes_ = 0;
  memory_ = CudaContext::address(context.allocate(bytes));
  bytes_ = bytes;
}

}  // namespace lockstep::detail::cuda
