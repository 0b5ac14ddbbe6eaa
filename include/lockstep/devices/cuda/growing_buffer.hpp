/// \file
/// Memory of a GPU that is kept between calls and grows with them. Invariant: it is a handle of a
/// context, see CudaContext::handle, and ends with it.
#pragma once

#include <cstddef>
#include <utility>

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/context.hpp"

namespace lockstep::detail::cuda {

class GrowingBuffer {
 public:
  GrowingBuffer() = default;
  LOCKSTEP_DECL ~GrowingBuffer();
  GrowingBuffer(const GrowingBuffer&) = delete;
  GrowingBuffer& operator=(const GrowingBuffer&) = delete;

  /// At least `bytes`; what was in it is lost when it grows.
  LOCKSTEP_DECL CUdeviceptr get(CudaContext& context, std::size_t bytes);

 private:
  LOCKSTEP_COLD_DECL void grow(CudaContext& context, std::size_t bytes);

  CUdeviceptr memory_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/growing_buffer.ipp"
#endif
