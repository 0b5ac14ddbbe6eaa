/// \file
/// Metrics that add row by row, on every device over host memory.
#pragma once

#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/metric.hpp"

namespace lockstep {

template <RowwiseMetric Op, HostDevice D>
struct Kernel<Op, D> : KernelTraits {
  [[gnu::noinline]] static void run(const Op& op, const MetricIo<D, typename Op::target_type>& io) {
    const std::size_t size = op.size(), target_size = op.target_size();
    for (std::size_t n = 0; n < io.count; ++n)
      op.example(io.prediction + n * size,     // (size)
                 io.target + n * target_size,  // (target_size)
                 io.state);
  }
};

}  // namespace lockstep
