/// \file
/// BatchNormalization fused with a ReLU, or with the addition and ReLU that end a residual block,
/// on a GPU: one pass over the rows instead of two or three. Invariant: backward masks dy by the
/// recomputed result, or by y where an addition followed.
#pragma once

#include "lockstep/devices/cuda/ops/batch_normalization.hpp"
#include "lockstep/devices/fused_normalization.hpp"

namespace lockstep {

namespace detail::cuda {

/// Adapts the kernel to an op with a member `normalization`.
template <class Op, class Precision, NormalizationTail Tail>
struct FusedNormalization : KernelTraits {
  using D = BasicCuda<Precision>;
  using Base = BatchNormalizationKernel<Precision, Tail>;
  using Prepared = typename Base::Prepared;
  static constexpr bool keeps_x = true, keeps_y = Base::keeps_y,
                        handles_recompute = Base::handles_recompute, skips_dw = Base::skips_dw;
  static constexpr bool exchanges(const Op& op) { return Base::exchanges(op.normalization); }
  static constexpr bool updates_state(const Op& op) {
    return Base::updates_state(op.normalization);
  }
  static constexpr std::size_t saved_once(const Op& op) {
    return Base::saved_once(op.normalization);
  }

  static Prepared prepare(const Op& op, typename D::Context& context, std::size_t count) {
    return Base::prepare(op.normalization, context, count);
  }
  static void forward(const Op& op, const Io<D>& io, Prepared& prepared) {
    Base::forward(op.normalization, io, prepared);
  }
  static void backward(const Op& op, const Io<D>& io, Prepared& prepared) {
    Base::backward(op.normalization, io, prepared);
  }
};

}  // namespace detail::cuda

/// y = ReLU(normalized x).
template <class Precision>
struct Kernel<BatchNormalizationReLUOp, BasicCuda<Precision>>
    : detail::cuda::FusedNormalization<BatchNormalizationReLUOp, Precision,
                                       detail::cuda::NormalizationTail::relu> {
  using library_kernel = Kernel;
};
/// y = ReLU(normalized x + x2).
template <class Precision>
struct Kernel<BatchNormalizationAddReLUOp, BasicCuda<Precision>>
    : detail::cuda::FusedNormalization<BatchNormalizationAddReLUOp, Precision,
                                       detail::cuda::NormalizationTail::add_relu> {
  using library_kernel = Kernel;
};

static_assert(HasKernel<BatchNormalizationReLUOp, Cuda> &&
              HasKernel<BatchNormalizationAddReLUOp, Cuda>);

}  // namespace lockstep
