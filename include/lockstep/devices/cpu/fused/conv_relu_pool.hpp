/// \file
/// The first layers of an image network in one pass: Conv2D over 1 to 4 channels, ReLU and 2 x 2
/// MaxPooling2D. Invariants: the input is the batch itself, so no input gradient is computed; NaN
/// propagates in both passes.
#pragma once

#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/fused/pooled_convolution.hpp"
#include "lockstep/devices/fused_relu.hpp"

namespace lockstep {

template <class P>
struct Kernel<ConvReLUPoolOp, BasicCpu<P>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCpu<P>;
  using Prepared = detail::PooledConvolution<typename D::real>;
  static constexpr bool keeps_x = true;
  static constexpr bool fits(const ConvReLUPoolOp& op) {
    const Pooling2DWindow& w = op.pool.window;
    return Prepared::fits(op.conv) && w.pool == KernelSize{2, 2} && w.strides == Strides{2, 2};
  }
  static constexpr std::size_t saved(const ConvReLUPoolOp& op) {
    return Prepared::winners_bytes(op.conv);
  }

  static Prepared prepare(const ConvReLUPoolOp& op, typename D::Context& context, std::size_t) {
    return Prepared(op.conv, context.threads(), detail::longest_vectors());
  }
  static void forward(const ConvReLUPoolOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.forward(io.step.count, io.x[0], io.w, bias(op, io.w), io.y, io.saved, io.scratch);
  }
  static void backward(const ConvReLUPoolOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.backward(io.step.count, io.x[0], io.dy, io.saved, io.dw, bias(op, io.dw), io.scratch);
  }

 private:
  template <class T>
  static T* bias(const ConvReLUPoolOp& op, T* w) {
    return op.conv.bias ? w + op.conv.kernel_size() : nullptr;
  }
};

static_assert(HasKernel<ConvReLUPoolOp, Cpu>);

}  // namespace lockstep
