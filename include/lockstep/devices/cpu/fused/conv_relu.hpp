/// \file
/// Conv2D fused with a ReLU. Backward masks dy by y, so the convolution's output before the ReLU is
/// never stored. NaN propagates.
#pragma once

#include "lockstep/devices/cpu/conv2d.hpp"
#include "lockstep/devices/fused_relu.hpp"

namespace lockstep {

template <class P>
struct Kernel<ConvReLUOp, BasicCpu<P>>
    : detail::FusedReLUKernel<ConvReLUOp, BasicCpu<P>, detail::ConvolutionCalls<BasicCpu<P>>> {
  using library_kernel = Kernel;
  template <std::same_as<ForwardOnly>... Only>
  static auto prepare(const ConvReLUOp& op, typename BasicCpu<P>::Context& context,
                      std::size_t count, Only... only) {
    return detail::ConvolutionCalls<BasicCpu<P>>(op.conv, context, count, true, "conv2d", only...);
  }
};

static_assert(HasKernel<ConvReLUOp, Cpu>);

}  // namespace lockstep
