/// \file
/// Softmax and log-softmax over the last axis on the CPU, by oneDNN.
#pragma once

#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/onednn.hpp"
#include "lockstep/layers/activations/softmax.hpp"

namespace lockstep {
namespace detail {

struct SoftmaxCalls {
  onednn::Scratch scratch;
  onednn::Call forward, backward;
  std::size_t scratch_bytes() const { return scratch.bytes(); }
};

template <class O, class D, onednn::algorithm Which>
struct SoftmaxKernel : KernelTraits {
  using T = typename D::real;
  using Prepared = SoftmaxCalls;
  static constexpr bool keeps_y = true, in_place = true;

  static Prepared prepare(const O& op, typename D::Context& context, std::size_t count) {
    Prepared p;
    if (count == 0) return p;
    const auto scope = context.scope();
    onednn::call("softmax", op.out(), [&] {
      const long channels = op.in.channels(),
                 rows = static_cast<long>(count * op.in.size()) / channels;
      const auto data = onednn::describe<T>({rows, channels}, onednn::Tag::ab);
      const auto pd = onednn::softmax_forward(context.engine(), Which, data, 1);
      const auto back = onednn::softmax_backward(context.engine(), Which, data, 1, pd);
      p.forward = onednn::Call(pd, {{DNNL_ARG_SRC, data}, {DNNL_ARG_DST, data}}, p.scratch);
      p.backward = onednn::Call(
          back, {{DNNL_ARG_DST, data}, {DNNL_ARG_DIFF_DST, data}, {DNNL_ARG_DIFF_SRC, data}},
          p.scratch);
    });
    return p;
  }
  [[gnu::noinline]] static void forward(const O& op, const Io<D>& io, Prepared& prepared) {
    if (io.count == 0) return;
    onednn::call("softmax", op.out(),
                 [&] { prepared.forward(io.device.stream(), io.scratch, io.x, io.y); });
  }
  [[gnu::noinline]] static void backward(const O& op, const Io<D>& io, Prepared& prepared) {
    if (io.count == 0 || io.dx == nullptr) return;
    onednn::call("softmax", op.out(),
                 [&] { prepared.backward(io.device.stream(), io.scratch, io.y, io.dy, io.dx); });
  }
};

}  // namespace detail

template <class P>
struct Kernel<SoftmaxOp, BasicCpu<P>>
    : detail::SoftmaxKernel<SoftmaxOp, BasicCpu<P>, dnnl::algorithm::softmax_accurate> {};
template <class P>
struct Kernel<LogSoftmaxOp, BasicCpu<P>>
    : detail::SoftmaxKernel<LogSoftmaxOp, BasicCpu<P>, dnnl::algorithm::softmax_log> {};

static_assert(HasKernel<SoftmaxOp, Cpu> && HasKernel<LogSoftmaxOp, Cpu>);

}  // namespace lockstep
