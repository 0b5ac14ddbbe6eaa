/// \file
/// Memory of a GPU that is kept between calls and grows with them. Invariant: it is a handle of a
/// context, see CudaContext::handle, and ends with it.
#pragma once

#include <cstddef>
#include <utility>

#include "lockstep/devices/cuda/context.hpp"

namespace lockstep::detail::cuda {

class GrowingRoom {
 public:
  GrowingRoom() = default;
  ~GrowingRoom() {
    if (room_ != 0) driver().cuMemFree(room_);
  }
  GrowingRoom(const GrowingRoom&) = delete;
  GrowingRoom& operator=(const GrowingRoom&) = delete;

  /// At least `bytes`; what was in it is lost when it grows.
  CUdeviceptr get(CudaContext& context, std::size_t bytes) {
    if (bytes > bytes_) grow(context, bytes);
    return room_;
  }

 private:
  [[gnu::cold, gnu::noinline]] void grow(CudaContext& context, std::size_t bytes) {
    if (room_ != 0) context.release(reinterpret_cast<std::byte*>(std::exchange(room_, 0)), 0);
    bytes_ = 0;
    room_ = CudaContext::address(context.allocate(bytes));
    bytes_ = bytes;
  }

  CUdeviceptr room_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep::detail::cuda
