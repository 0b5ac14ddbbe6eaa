/// \file
/// Dense with the ReLU behind it. Invariant: backward needs only the result, whose positive
/// elements are the mask. oneDNN's ReLU maps NaN to 0.
#pragma once

#include "lockstep/devices/cpu/dense.hpp"
#include "lockstep/devices/fused_relu.hpp"

namespace lockstep {

template <class P>
struct Kernel<DenseReLUOp, BasicCpu<P>>
    : detail::FusedReLUKernel<DenseReLUOp, BasicCpu<P>, detail::InnerProductCalls<BasicCpu<P>>> {
  using library_kernel = Kernel;
  static constexpr bool dx_in_place = true, updates = true;

  static auto prepare(const DenseReLUOp& op, typename BasicCpu<P>::Context& context,
                      std::size_t count) {
    return detail::InnerProductCalls<BasicCpu<P>>(op.dense, context, count, true);
  }
};

static_assert(HasKernel<DenseReLUOp, Cpu>);

}  // namespace lockstep
