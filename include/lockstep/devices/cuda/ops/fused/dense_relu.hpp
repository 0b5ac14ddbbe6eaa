/// \file
/// Dense fused with a ReLU on a GPU. Invariant: backward needs only the result, whose positive
/// elements are the mask. lockstep's own kernels propagate NaN; NVIDIA's libraries decide for
/// themselves.
#pragma once

#include "lockstep/devices/cuda/ops/dense.hpp"
#include "lockstep/devices/fused_relu.hpp"

namespace lockstep {

/// Keeps x and y; packed weights live for the step.
template <class Precision>
struct Kernel<DenseReLUOp, BasicCuda<Precision>>
    : detail::FusedReLUKernel<DenseReLUOp, BasicCuda<Precision>,
                              detail::cuda::DenseCalls<Precision, true>> {
  using library_kernel = Kernel;
  static constexpr std::size_t saved_once(const DenseReLUOp& op) {
    return detail::cuda::DenseStep<Precision>::packed_bytes(op.dense);
  }
  static auto prepare(const DenseReLUOp& op, CudaContext& context, std::size_t count) {
    return detail::cuda::DenseCalls<Precision, true>(op.dense, context, count);
  }
};

static_assert(HasKernel<DenseReLUOp, Cuda>);

}  // namespace lockstep
