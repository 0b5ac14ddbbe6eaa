/// \file
/// Add on the reference device: y = x + x2, dx = dx2 = dy.
#pragma once

#include <algorithm>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/reference/device.hpp"
#include "lockstep/layers/merging/add.hpp"

namespace lockstep {

template <class T>
struct Kernel<AddOp, Reference<T>> : KernelTraits {
  using library_kernel = Kernel;
  static constexpr bool in_place = true;

  static void forward(const AddOp& op, const Io<Reference<T>>& io) {
    const std::size_t size = io.step.count * op.in.size();
    for (std::size_t i = 0; i < size; ++i) io.y[i] = io.x[0][i] + io.x[1][i];
  }

  static void backward(const AddOp& op, const Io<Reference<T>>& io) {
    const std::size_t size = io.step.count * op.in.size();
    if (io.dx[0] != nullptr) std::copy_n(io.dy, size, io.dx[0]);
    if (io.dx[1] != nullptr) std::copy_n(io.dy, size, io.dx[1]);
  }
};

static_assert(HasKernel<AddOp, Reference<double>>);

}  // namespace lockstep
