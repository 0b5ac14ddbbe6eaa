/// \file
/// Dense with the ReLU behind it. Invariant: backward needs only the result, whose positive
/// elements are the mask. oneDNN's ReLU maps NaN to 0.
#pragma once

#include "lockstep/devices/cpu/dense.hpp"
#include "lockstep/devices/fused_relu.hpp"

namespace lockstep {

template <class P>
struct Kernel<DenseReLUOp, BasicCpu<P>> : KernelTraits {
  using D = BasicCpu<P>;
  using Prepared = detail::InnerProductCalls<D>;
  static constexpr bool keeps_x = true, keeps_y = true, dx_in_place = true, updates = true;

  static Prepared prepare(const DenseReLUOp& op, typename D::Context& context, std::size_t count) {
    return Prepared(op.dense, context, count, true);
  }
  [[gnu::noinline]] static void forward(const DenseReLUOp& op, const Io<D>& io,
                                        Prepared& prepared) {
    prepared.forward(op.dense, io);
  }
  [[gnu::noinline]] static void backward(const DenseReLUOp& op, const Io<D>& io,
                                         Prepared& prepared) {
    prepared.backward(op.dense, io);
  }
};

static_assert(HasKernel<DenseReLUOp, Cpu>);

}  // namespace lockstep
