/// \file
/// The value of L1 and L2 penalties on every device over host memory, summed in double.
#pragma once

#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/optimizer.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<Penalty, D> : KernelTraits {
  using library_kernel = Kernel;
  /// *io.sum += l1 sum |w| + l2 sum w^2.
  static void run(const Penalty& penalty, const PenaltyIo<D>& io) {
    double absolute = 0, square = 0;
    for (std::size_t i = 0; i < io.size; ++i) {
      const double v = static_cast<double>(io.w[i]);
      absolute += v < 0 ? -v : v;
      square += v * v;
    }
    *io.sum += penalty.l1 * absolute + penalty.l2 * square;
  }
};

}  // namespace lockstep
