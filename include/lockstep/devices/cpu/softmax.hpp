/// \file
/// Softmax and log-softmax over the last axis on the CPU, computed by oneDNN.
#pragma once

#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/onednn.hpp"
#include "lockstep/layers/activations/softmax.hpp"

namespace lockstep {
namespace detail {

/// Prepared state: both passes and their scratch.
struct SoftmaxCalls {
  onednn::Scratch scratch;
  onednn::Call forward, backward;
  std::size_t scratch_bytes() const { return scratch.bytes(); }
};

/// The kernel of both ops; `Which` is oneDNN's algorithm.
template <class O, class D, dnnl_alg_kind_t Which>
struct SoftmaxKernel : KernelTraits {
  using Prepared = SoftmaxCalls;
  static constexpr bool keeps_y = true, in_place = true;

  static Prepared prepare(const O& op, typename D::Context& context, std::size_t count) {
    Prepared p;
    if (count == 0) return p;
    const auto scope = context.scope();
    const onednn::Site at{"softmax", op.out(), context.engine()};
    // All axes before the last are rows of one matrix.
    const std::ptrdiff_t channels = op.in.channels(),
                         rows = static_cast<std::ptrdiff_t>(count * op.in.size()) / channels;
    const onednn::MemoryDesc data(at, onednn::data_type<ActivationOf<D>>(), {rows, channels},
                                  dnnl_ab);
    const auto pd = onednn::softmax_forward(at, Which, data, 1);
    p.forward = onednn::Call(at, pd, {{DNNL_ARG_SRC, data}, {DNNL_ARG_DST, data}}, p.scratch);
    p.backward = onednn::Call(
        at, onednn::softmax_backward(at, Which, data, 1, pd),
        {{DNNL_ARG_DST, data}, {DNNL_ARG_DIFF_DST, data}, {DNNL_ARG_DIFF_SRC, data}}, p.scratch);
    return p;
  }
  static void forward(const O&, const Io<D>& io, Prepared& prepared) {
    if (io.step.count == 0) return;
    prepared.forward(io.device.stream(), io.scratch, {io.x, io.y});
  }
  static void backward(const O&, const Io<D>& io, Prepared& prepared) {
    if (io.step.count == 0 || io.dx == nullptr) return;
    prepared.backward(io.device.stream(), io.scratch, {io.y, io.dy, io.dx});
  }
};

}  // namespace detail

template <class P>
struct Kernel<SoftmaxOp, BasicCpu<P>>
    : detail::SoftmaxKernel<SoftmaxOp, BasicCpu<P>, dnnl_softmax_accurate> {
  using library_kernel = Kernel;
};
template <class P>
struct Kernel<LogSoftmaxOp, BasicCpu<P>>
    : detail::SoftmaxKernel<LogSoftmaxOp, BasicCpu<P>, dnnl_softmax_log> {
  using library_kernel = Kernel;
};

static_assert(HasKernel<SoftmaxOp, Cpu> && HasKernel<LogSoftmaxOp, Cpu>);

}  // namespace lockstep
