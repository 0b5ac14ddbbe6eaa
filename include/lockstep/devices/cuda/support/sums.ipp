#pragma once

#include "lockstep/devices/cuda/support/sums.hpp"

namespace lockstep::detail::cuda {

SumRoom::SumRoom() : room_(take_memory(bytes)) {
  check(driver().cuMemsetD8Async(room_, 0, bytes, nullptr), "clearing memory");
  check(driver().cuStreamSynchronize(nullptr), "waiting for the GPU");
}

SumRoom::~SumRoom() { driver().cuMemFree(room_); }

Grid SumRoom::grid(std::size_t units, std::size_t each, unsigned threads) {
  const std::size_t blocks = (units + each - 1) / each;
  return {{static_cast<unsigned>(std::clamp<std::size_t>(blocks, 1, most_blocks)), 1, 1},
          {threads, 1, 1}};
}

}  // namespace lockstep::detail::cuda
