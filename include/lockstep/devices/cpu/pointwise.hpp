/// \file
/// Pointwise activations on the CPU, by oneDNN's element-wise primitives. An activation without one
/// here, as a user's own, runs in the loops of devices/host. oneDNN's ReLU and ReLU6 map NaN to 0.
#pragma once

#include <cstddef>
#include <type_traits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/onednn.hpp"
#include "lockstep/devices/host/pointwise.hpp"
#include "lockstep/layers/activations/elu.hpp"
#include "lockstep/layers/activations/gelu.hpp"
#include "lockstep/layers/activations/leaky_relu.hpp"
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/layers/activations/relu6.hpp"
#include "lockstep/layers/activations/sigmoid.hpp"
#include "lockstep/layers/activations/silu.hpp"
#include "lockstep/layers/activations/softplus.hpp"
#include "lockstep/layers/activations/tanh.hpp"

namespace lockstep {
namespace detail {

/// An activation in oneDNN's words.
struct EltwiseFunction {
  onednn::algorithm which;
  float alpha = 0, beta = 0;
};

// One overload an op, so that a missing one is a question and not an error.
inline EltwiseFunction eltwise_function(const ReLUOp&) {
  return {onednn::algorithm::eltwise_relu_use_dst_for_bwd};
}
inline EltwiseFunction eltwise_function(const LeakyReLUOp& op) {
  return {onednn::algorithm::eltwise_relu_use_dst_for_bwd, static_cast<float>(op.slope)};
}
inline EltwiseFunction eltwise_function(const ReLU6Op&) {
  return {onednn::algorithm::eltwise_clip_v2_use_dst_for_bwd, 0, 6};
}
inline EltwiseFunction eltwise_function(const ELUOp&) {
  return {onednn::algorithm::eltwise_elu_use_dst_for_bwd, 1};
}
inline EltwiseFunction eltwise_function(const TanhOp&) {
  return {onednn::algorithm::eltwise_tanh_use_dst_for_bwd};
}
inline EltwiseFunction eltwise_function(const SigmoidOp&) {
  return {onednn::algorithm::eltwise_logistic_use_dst_for_bwd};
}
inline EltwiseFunction eltwise_function(const SiLUOp&) {
  return {onednn::algorithm::eltwise_swish, 1};
}
inline EltwiseFunction eltwise_function(const GELUOp&) {
  return {onednn::algorithm::eltwise_gelu_erf};
}
inline EltwiseFunction eltwise_function(const SoftplusOp&) {
  return {onednn::algorithm::eltwise_soft_relu, 1};
}

template <class O>
concept HasEltwise = requires(const O& op) {
  eltwise_function(op);
};

/// Whether backward reads y, else x. oneDNN's softplus needs x.
template <class O>
inline constexpr bool eltwise_from_y = O::from_y && !std::is_same_v<O, SoftplusOp>;

template <class T>
struct EltwiseCalls {
  onednn::Scratch scratch;
  onednn::Eltwise calls;
  std::size_t scratch_bytes() const { return scratch.bytes(); }
};

}  // namespace detail

template <detail::HasEltwise O, class P>
struct Kernel<O, BasicCpu<P>> : KernelTraits {
  using D = BasicCpu<P>;
  using T = typename D::real;
  using Prepared = detail::EltwiseCalls<T>;
  static constexpr bool keeps_y = detail::eltwise_from_y<O>, keeps_x = !keeps_y, in_place = keeps_y;

  static Prepared prepare(const O& op, typename D::Context& context, std::size_t count) {
    Prepared prepared;
    if (count == 0) return prepared;
    const auto scope = context.scope();
    detail::onednn::call("an activation", op.out(), [&] {
      const detail::EltwiseFunction f = detail::eltwise_function(op);
      prepared.calls =
          detail::onednn::eltwise<T>(context.engine(), f.which, keeps_y, count * op.in.size(),
                                     f.alpha, f.beta, prepared.scratch);
    });
    return prepared;
  }
  [[gnu::noinline]] static void forward(const O& op, const Io<D>& io, Prepared& prepared) {
    if (io.count == 0) return;
    detail::onednn::call("an activation", op.out(), [&] {
      prepared.calls.forward(io.device.stream(), io.scratch, io.x, io.y);
    });
  }
  [[gnu::noinline]] static void backward(const O& op, const Io<D>& io, Prepared& prepared) {
    if (io.count == 0 || io.dx == nullptr) return;
    detail::onednn::call("an activation", op.out(), [&] {
      prepared.calls.backward(io.device.stream(), io.scratch, keeps_y ? io.y : io.x, io.dy, io.dx);
    });
  }
};

static_assert(HasKernel<ReLUOp, Cpu> && HasKernel<GELUOp, Cpu>);

}  // namespace lockstep
