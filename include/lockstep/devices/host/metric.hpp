/// \file
/// Metrics that accumulate example by example, on every device over host memory.
#pragma once

#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/metric.hpp"

namespace lockstep {

template <RowwiseMetric Op, HostDevice D>
struct Kernel<Op, D> : KernelTraits {
  using library_kernel = Kernel;
  static constexpr bool weighs = WeighableMetric<Op>;
  static void run(const Op& op, const MetricIo<D, typename Op::target_type>& io) {
    if constexpr (HasRows<Op>)
      if (io.weights > 1) return add(op.row(), io, io.count * op.rows());
    add(op, io, io.count);
  }

 private:
  /// Adds `count` examples, or rows of them, each with a weight.
  static void add(const Op& op, const MetricIo<D, typename Op::target_type>& io,
                  std::size_t count) {
    const std::size_t size = op.size(), target_size = op.target_size();
    for (std::size_t n = 0; n < count; ++n) {
      const auto* const p = io.prediction + n * size;     // (size)
      const auto* const t = io.target + n * target_size;  // (target_size)
      if constexpr (weighs)
        op.example(p, t, io.state, io.weight == nullptr ? 1 : static_cast<double>(io.weight[n]));
      else
        op.example(p, t, io.state);
    }
  }
};

}  // namespace lockstep
