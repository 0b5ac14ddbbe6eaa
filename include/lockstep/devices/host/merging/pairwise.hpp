/// \file
/// Element-by-element merges on every device over host memory: the op's scalar `value`, `dx` and
/// `dx2`. A device with a faster kernel for some op specializes Kernel further.
#pragma once

#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/ranges.hpp"
#include "lockstep/layers/merging/pairwise.hpp"

namespace lockstep {

template <Pairwise Op, HostDevice D>
struct Kernel<Op, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  using A = ActivationOf<D>;
  static constexpr bool keeps_x = Op::reads_inputs, in_place = !Op::reads_inputs;

  static void forward(const Op& op, const Io<D>& io) {
    detail::for_ranges(io.device, io.step.count * op.out().size(), grain, [&](Slice part) {
      for (std::size_t i = part.first; i < part.first + part.count; ++i)
        io.y[i] = A(op.value(T(io.x[0][i]), T(io.x[1][i])));
    });
  }

  /// dx may be dy: each element of dy is read before it is written.
  static void backward(const Op& op, const Io<D>& io) {
    detail::for_ranges(io.device, io.step.count * op.out().size(), grain, [&](Slice part) {
      for (std::size_t i = part.first; i < part.first + part.count; ++i) {
        const T dy = T(io.dy[i]);
        T a(0), b(0);
        if constexpr (Op::reads_inputs) a = T(io.x[0][i]), b = T(io.x[1][i]);
        if (io.dx[0] != nullptr) io.dx[0][i] = A(op.dx(dy, a, b));
        if (io.dx[1] != nullptr) io.dx[1][i] = A(op.dx2(dy, a, b));
      }
    });
  }

 private:
  static constexpr std::size_t grain = 1 << 14;  // minimum elements per thread
};

}  // namespace lockstep
