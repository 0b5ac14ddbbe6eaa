/// \file
/// The memory that a model uses.
#pragma once

#include <cstddef>

namespace lockstep {

/// Memory of one replica, in bytes.
struct MemoryUse {
  std::size_t weights = 0, gradients = 0;
  std::size_t optimizer = 0;  ///< owned slots of the optimizer and of its options
  std::size_t state = 0;      ///< non-trainable parameters, such as running statistics
  std::size_t working = 0;    ///< activations and workspace for the batch sizes seen so far
  std::size_t data = 0;       ///< peak of the data sets resident on the device
  std::size_t total() const { return weights + gradients + optimizer + state + working + data; }
};

}  // namespace lockstep
