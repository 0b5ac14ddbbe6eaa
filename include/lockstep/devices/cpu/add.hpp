/// \file
/// Add on the CPU, vectorized and on all threads. Invariant: y may alias x[0].
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/elements.hpp"
#include "lockstep/devices/host/merge.hpp"
#include "lockstep/layers/merging/add.hpp"

namespace lockstep {

template <class P>
struct Kernel<AddOp, BasicCpu<P>> : detail::MergeKernel<AddOp, BasicCpu<P>> {
  using library_kernel = Kernel;
  using D = BasicCpu<P>;
  using Base = detail::MergeKernel<AddOp, D>;

  static void forward(const AddOp& op, const Io<D>& io) {
    // In a narrower type, sums of more than two are rounded once.
    if (op.operands() > 2 && !std::is_same_v<typename D::real, ActivationOf<D>>)
      return Base::forward(op, io);
    const std::size_t size = io.step.count * op.in.size();
    const auto* sum = io.x[0];
    for (std::size_t k = 1; k < op.operands(); ++k) {
      detail::add_elements(io.device.threads(), sum, io.x[k], io.y, size);
      sum = io.y;
    }
  }

  static void backward(const AddOp& op, const Io<D>& io) {
    detail::parallel_ranges(io.device.threads(), io.step.count * op.in.size(),
                            detail::elements_grain, [&](Slice part, std::size_t) {
                              for (std::size_t k = 0; k < op.operands(); ++k)
                                if (io.dx[k] != nullptr)
                                  std::copy_n(io.dy + part.first, part.count,
                                              io.dx[k] + part.first);
                            });
  }
};

static_assert(HasKernel<AddOp, Cpu> && HasKernel<AddOp, CpuBFloat16>);

}  // namespace lockstep
