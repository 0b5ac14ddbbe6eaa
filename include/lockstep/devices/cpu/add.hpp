/// \file
/// Add on the CPU, vectorized and on all threads. Invariant: y may alias x.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/elements.hpp"
#include "lockstep/layers/merging/add.hpp"

namespace lockstep {

template <class P>
struct Kernel<AddOp, BasicCpu<P>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCpu<P>;
  static constexpr bool in_place = true;

  static void forward(const AddOp& op, const Io<D>& io) {
    detail::add_elements(io.device.threads(), io.x[0], io.x[1], io.y, io.step.count * op.in.size());
  }

  static void backward(const AddOp& op, const Io<D>& io) {
    detail::parallel_ranges(io.device.threads(), io.step.count * op.in.size(),
                            detail::elements_grain, [&](Slice part, std::size_t) {
                              if (io.dx[0] != nullptr)
                                std::copy_n(io.dy + part.first, part.count, io.dx[0] + part.first);
                              if (io.dx[1] != nullptr)
                                std::copy_n(io.dy + part.first, part.count, io.dx[1] + part.first);
                            });
  }
};

static_assert(HasKernel<AddOp, Cpu> && HasKernel<AddOp, CpuBFloat16>);

}  // namespace lockstep
