/// \file
/// BatchNormalization fused with a ReLU, or with the Add and the ReLU that end a residual block:
/// one pass over the rows instead of two or three. Invariant: for the ReLU's mask, backward
/// recomputes the normalized value; with an Add it reads the sign of y, since x2 is not kept.
#pragma once

#include "lockstep/devices/cpu/batch_normalization.hpp"
#include "lockstep/devices/fused_normalization.hpp"

namespace lockstep {

namespace detail {

/// The fused kernel; `Op` has a member `normalization`.
template <class Op, class D, NormalizationEpilogue epilogue>
struct FusedNormalization : KernelTraits {
  using Base = CpuBatchNormalization<D, epilogue>;
  using Prepared = typename Base::Prepared;
  static constexpr bool keeps_x = true, keeps_y = epilogue == NormalizationEpilogue::add_relu,
                        handles_recompute = Base::handles_recompute, skips_dw = Base::skips_dw;
  static constexpr bool exchanges(const Op& op) { return Base::exchanges(op.normalization); }
  static constexpr bool updates_state(const Op& op) {
    return Base::updates_state(op.normalization);
  }
  static constexpr std::size_t saved_once(const Op& op) {
    return Base::saved_once(op.normalization);
  }

  static Prepared prepare(const Op& op, typename D::Context& context, std::size_t) {
    return Base::workspace(op.normalization, context);
  }
  static void forward(const Op& op, const Io<D>& io, Prepared& workspace) {
    Base::forward(op.normalization, io, workspace);
  }
  static void backward(const Op& op, const Io<D>& io, Prepared& workspace) {
    Base::backward(op.normalization, io, workspace);
  }
};

}  // namespace detail

template <class P>
struct Kernel<BatchNormalizationReLUOp, BasicCpu<P>>
    : detail::FusedNormalization<BatchNormalizationReLUOp, BasicCpu<P>,
                                 detail::NormalizationEpilogue::relu> {
  using library_kernel = Kernel;
};
template <class P>
struct Kernel<BatchNormalizationAddReLUOp, BasicCpu<P>>
    : detail::FusedNormalization<BatchNormalizationAddReLUOp, BasicCpu<P>,
                                 detail::NormalizationEpilogue::add_relu> {
  using library_kernel = Kernel;
};

static_assert(HasKernel<BatchNormalizationReLUOp, Cpu>);
static_assert(HasKernel<BatchNormalizationAddReLUOp, Cpu>);

}  // namespace lockstep
