#pragma once

#include "lockstep/devices/cuda/growing_room.hpp"

namespace lockstep::detail::cuda {

GrowingRoom::~GrowingRoom() {
  if (room_ != 0) driver().cuMemFree(room_);
}

CUdeviceptr GrowingRoom::get(CudaContext& context, std::size_t bytes) {
  if (bytes > bytes_) grow(context, bytes);
  return room_;
}

void GrowingRoom::grow(CudaContext& context, std::size_t bytes) {
  if (room_ != 0) context.release(reinterpret_cast<std::byte*>(std::exchange(room_, 0)), 0);
  bytes_ = 0;
  room_ = CudaContext::address(context.allocate(bytes));
  bytes_ = bytes;
}

}  // namespace lockstep::detail::cuda
