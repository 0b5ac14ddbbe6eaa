/// \file
/// Dense with the ReLU behind it on a GPU. Invariant: backward needs only the result, whose
/// positive elements are the mask. Our own kernels keep NaN; what NVIDIA's do with it is theirs to
/// say.
#pragma once

#include "lockstep/devices/cuda/kernels/dense.hpp"
#include "lockstep/devices/fused_relu.hpp"

namespace lockstep {

template <class Precision>
struct Kernel<DenseReLUOp, BasicCuda<Precision>> : KernelTraits {
  using D = BasicCuda<Precision>;
  using Prepared = detail::cuda::DenseCalls<Precision, true>;
  static constexpr bool keeps_x = true, keeps_y = true;
  static constexpr std::size_t saved_once(const DenseReLUOp& op) {
    return detail::cuda::DenseStep<Precision>::packed_bytes(op.dense);
  }

  static Prepared prepare(const DenseReLUOp& op, CudaContext& context, std::size_t count) {
    return Prepared(op.dense, context, count);
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

static_assert(HasKernel<DenseReLUOp, Cuda>);

}  // namespace lockstep
