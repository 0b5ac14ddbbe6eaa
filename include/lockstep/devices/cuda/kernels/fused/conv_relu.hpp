/// \file
/// Conv2D with the ReLU behind it on a GPU. Invariant: backward needs only the result, whose
/// positive elements are the mask. Our own kernels keep NaN; what NVIDIA's do with it is theirs to
/// say.
#pragma once

#include "lockstep/devices/cuda/kernels/conv2d.hpp"
#include "lockstep/devices/fused_relu.hpp"

namespace lockstep {

template <class Precision>
struct Kernel<ConvReLUOp, BasicCuda<Precision>> : KernelTraits {
  using D = BasicCuda<Precision>;
  using Prepared = detail::cuda::ConvolutionCalls<Precision, true>;
  static constexpr bool keeps_x = true, keeps_y = true;
  static constexpr std::size_t saved_once(const ConvReLUOp& op) {
    return detail::cuda::packed_bytes<Precision>(op.conv);
  }

  static Prepared prepare(const ConvReLUOp& op, CudaContext& context, std::size_t count) {
    return Prepared(op.conv, context, count);
  }
  [[gnu::noinline]] static void forward(const ConvReLUOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.forward(op.conv, io);
  }
  [[gnu::noinline]] static void backward(const ConvReLUOp& op, const Io<D>& io,
                                         Prepared& prepared) {
    prepared.backward(op.conv, io);
  }
};

static_assert(HasKernel<ConvReLUOp, Cuda>);

}  // namespace lockstep
