/// \file
/// PositionStepOp on every device over host memory.
#pragma once

#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/layers/position_step.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<PositionStepOp, D> : KernelTraits {
  using T = typename D::real;
  using A = ActivationOf<D>;
  static constexpr bool in_place = true;

  static void forward(const PositionStepOp& op, const Io<D>& io) {
    const std::size_t size = op.in.size();
    const T* const w = io.w + io.step.first_ordinal * size;  // (count, size)
    for (std::size_t i = 0; i < io.step.count * size; ++i)
      io.y[i] = static_cast<A>(T(io.x[0][i]) + w[i]);
  }
};

}  // namespace lockstep
