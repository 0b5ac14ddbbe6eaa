/// \file
/// A GPU buffer that persists between calls and grows on demand. Invariant: it belongs to a context
/// (CudaContext::handle) and is freed with it.
#pragma once

#include <cstddef>
#include <utility>

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/context.hpp"

namespace lockstep::detail::cuda {

/// A scratch buffer shared by all users of its type on one GPU.
class GrowingBuffer {
 public:
  GrowingBuffer() = default;
  LOCKSTEP_DECL ~GrowingBuffer();
  GrowingBuffer(const GrowingBuffer&) = delete;
  GrowingBuffer& operator=(const GrowingBuffer&) = delete;

  /// Returns at least `bytes`; growing discards the content and waits for the GPU.
  LOCKSTEP_DECL CUdeviceptr get(CudaContext& context, std::size_t bytes);

 private:
  /// Replaces the memory. \throws OutOfMemory; the buffer is then empty.
  LOCKSTEP_COLD_DECL void grow(CudaContext& context, std::size_t bytes);

  CUdeviceptr memory_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/growing_buffer.ipp"
#endif
