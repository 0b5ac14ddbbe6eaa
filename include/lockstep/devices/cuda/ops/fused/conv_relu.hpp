/// \file
/// Conv2D fused with a ReLU on a GPU. Invariant: backward needs only the result, whose positive
/// elements are the mask. lockstep's own kernels propagate NaN; NVIDIA's libraries decide for
/// themselves.
#pragma once

#include "lockstep/devices/cuda/ops/convolution/conv2d.hpp"
#include "lockstep/devices/fused_relu.hpp"

namespace lockstep {

/// Keeps x and y; packed weights live for the step.
template <class Precision>
struct Kernel<ConvReLUOp, BasicCuda<Precision>>
    : detail::FusedReLUKernel<ConvReLUOp, BasicCuda<Precision>,
                              detail::cuda::ConvolutionCalls<Precision, true>> {
  using library_kernel = Kernel;
  static constexpr std::size_t saved_once(const ConvReLUOp& op) {
    return detail::cuda::packed_bytes<Precision>(op.conv);
  }
  static auto prepare(const ConvReLUOp& op, CudaContext& context, std::size_t count) {
    return detail::cuda::ConvolutionCalls<Precision, true>(op.conv, context, count);
  }
};

static_assert(HasKernel<ConvReLUOp, Cuda>);

}  // namespace lockstep
