/// \file
/// What a model holds in memory.
#pragma once

#include <cstddef>

namespace lockstep {

/// Bytes that a model holds.
struct MemoryUse {
  std::size_t weights = 0, gradients = 0, optimizer = 0, state = 0;
  std::size_t working = 0;  ///< activations and scratch for the batches seen so far
  std::size_t data = 0;     ///< data sets, the most that lay on the device at a time
  std::size_t total() const { return weights + gradients + optimizer + state + working + data; }
};

}  // namespace lockstep
