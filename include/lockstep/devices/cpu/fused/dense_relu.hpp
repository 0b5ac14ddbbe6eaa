/// \file
/// Dense fused with a ReLU. Backward masks dy by y, so the product before the ReLU is never stored.
/// NaN propagates.
#pragma once

#include "lockstep/devices/cpu/dense.hpp"
#include "lockstep/devices/fused_relu.hpp"

namespace lockstep {

template <class P>
struct Kernel<DenseReLUOp, BasicCpu<P>>
    : detail::FusedReLUKernel<DenseReLUOp, BasicCpu<P>, detail::InnerProductCalls<BasicCpu<P>>> {
  using library_kernel = Kernel;
  static constexpr bool dx_in_place = true, updates = true;

  template <std::same_as<ForwardOnly>... Only>
  static auto prepare(const DenseReLUOp& op, typename BasicCpu<P>::Context& context,
                      std::size_t count, Only... only) {
    return detail::InnerProductCalls<BasicCpu<P>>(op.dense, context, count, true, true, only...);
  }
};

static_assert(HasKernel<DenseReLUOp, Cpu>);

}  // namespace lockstep
