/// \file
/// Pointwise activations on every device over host memory. The kernel applies the op's scalar
/// `value` and `derivative`. A device with a faster kernel for some op specializes Kernel further
/// (`Kernel<ReLUOp, MyDevice>`), and the more specialized template wins.
#pragma once

#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/layers/activations/pointwise.hpp"

namespace lockstep {

template <Pointwise Op, HostDevice D>
struct Kernel<Op, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  using A = ActivationOf<D>;
  static constexpr bool keeps_x = !Op::from_y, keeps_y = Op::from_y, in_place = Op::from_y;

  static void forward(const Op& op, const Io<D>& io) {
    const std::size_t size = io.step.count * op.out().size();
    for (std::size_t i = 0; i < size; ++i) io.y[i] = A(op.value(T(io.x[0][i])));
  }

  static void backward(const Op& op, const Io<D>& io) {
    if (io.dx[0] == nullptr) return;
    const std::size_t size = io.step.count * op.out().size();
    const auto* const known = Op::from_y ? io.y : io.x[0];
    for (std::size_t i = 0; i < size; ++i)
      io.dx[0][i] = A(T(io.dy[i]) * op.derivative(T(known[i])));
  }
};

}  // namespace lockstep
