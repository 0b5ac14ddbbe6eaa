/// \file
/// Losses that are sums over examples, on every device over host memory. Invariant: an example's
/// loss is computed in the device's type; examples are summed in double.
#pragma once

#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/loss.hpp"

namespace lockstep {

template <RowwiseLoss Op, HostDevice D>
struct Kernel<Op, D> : KernelTraits {
  using library_kernel = Kernel;
  static constexpr bool weighs = true;
  static void run(const Op& op, const LossIo<D, typename Op::target_type>& io) {
    if constexpr (HasRows<Op>)
      if (io.weights > 1) return add(op.row(), io, op.rows());
    add(op, io, 1);
  }

 private:
  /// `parts`: rows of an example, each with a weight.
  static void add(const Op& op, const LossIo<D, typename Op::target_type>& io, std::size_t parts) {
    const std::size_t size = op.size(), target_size = op.target_size();
    const double scale = io.scale / static_cast<double>(parts);
    double sum = 0;
    for (std::size_t n = 0; n < io.count * parts; ++n) {
      const double weight = io.weight == nullptr ? 1 : static_cast<double>(io.weight[n]);
      sum +=
          weight * op.example(io.prediction + n * size,     // (size)
                              io.target + n * target_size,  // (target_size)
                              io.gradient == nullptr ? nullptr : io.gradient + n * size,  // (size)
                              weight * scale);
    }
    *io.sum += sum / static_cast<double>(parts);
  }
};

}  // namespace lockstep
