/// \file
/// Conv2D with the ReLU behind it. Invariant: backward needs only the result, whose positive
/// elements are the mask. oneDNN's ReLU maps NaN to 0.
#pragma once

#include "lockstep/devices/cpu/conv2d.hpp"
#include "lockstep/devices/fused_relu.hpp"

namespace lockstep {

template <class P>
struct Kernel<ConvReLUOp, BasicCpu<P>> : KernelTraits {
  using D = BasicCpu<P>;
  using Prepared = detail::ConvolutionCalls<D>;
  static constexpr bool keeps_x = true, keeps_y = true;

  static Prepared prepare(const ConvReLUOp& op, typename D::Context& context, std::size_t count) {
    return Prepared(op.conv, context, count, true);
  }
  [[gnu::noinline]] static void forward(const ConvReLUOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.forward(op.conv, io);
  }
  [[gnu::noinline]] static void backward(const ConvReLUOp& op, const Io<D>& io,
                                         Prepared& prepared) {
    prepared.backward(op.conv, io);
  }
};

static_assert(HasKernel<ConvReLUOp, Cpu>);

}  // namespace lockstep
