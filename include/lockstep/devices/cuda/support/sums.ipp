#pragma once

#include "lockstep/devices/cuda/support/sums.hpp"

namespace lockstep::detail::cuda {

SumWorkspace::SumWorkspace() : memory_(allocate_memory(bytes)) {
  check(driver().cuMemsetD8Async(memory_, 0, bytes, nullptr), "clearing memory");
  check(driver().cuStreamSynchronize(nullptr), "waiting for the GPU");
}

SumWorkspace::~SumWorkspace() { driver().cuMemFree(memory_); }

Grid SumWorkspace::grid(std::size_t units, std::size_t each, unsigned threads) {
  const std::size_t blocks = (units + each - 1) / each;
  return {{static_cast<unsigned>(std::clamp<std::size_t>(blocks, 1, max_blocks)), 1, 1},
          {threads, 1, 1}};
}

}  // namespace lockstep::detail::cuda
