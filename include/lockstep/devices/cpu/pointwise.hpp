/// \file
/// Pointwise activations on the CPU, by oneDNN's element-wise primitives. An activation that is not
/// listed here, such as a user-defined one, runs in the loops of devices/host. oneDNN's ReLU and
/// ReLU6 map NaN to 0.
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

// One overload per op, so that the concept HasEltwise can detect a missing one.
inline onednn::EltwiseFunction eltwise_function(const ReLUOp&) {
  return {dnnl_eltwise_relu_use_dst_for_bwd};
}
inline onednn::EltwiseFunction eltwise_function(const LeakyReLUOp& op) {
  return {dnnl_eltwise_relu_use_dst_for_bwd, static_cast<float>(op.slope)};
}
inline onednn::EltwiseFunction eltwise_function(const ReLU6Op&) {
  return {dnnl_eltwise_clip_v2_use_dst_for_bwd, 0, 6};
}
inline onednn::EltwiseFunction eltwise_function(const ELUOp&) {
  return {dnnl_eltwise_elu_use_dst_for_bwd, 1};
}
inline onednn::EltwiseFunction eltwise_function(const TanhOp&) {
  return {dnnl_eltwise_tanh_use_dst_for_bwd};
}
inline onednn::EltwiseFunction eltwise_function(const SigmoidOp&) {
  return {dnnl_eltwise_logistic_use_dst_for_bwd};
}
inline onednn::EltwiseFunction eltwise_function(const SiLUOp&) { return {dnnl_eltwise_swish, 1}; }
inline onednn::EltwiseFunction eltwise_function(const GELUOp&) { return {dnnl_eltwise_gelu_erf}; }
inline onednn::EltwiseFunction eltwise_function(const SoftplusOp&) {
  return {dnnl_eltwise_soft_relu, 1};
}

/// Whether oneDNN has a primitive for O.
template <class O>
concept HasEltwise = requires(const O& op) { eltwise_function(op); };

/// Whether backward reads y rather than x. oneDNN's softplus needs x.
template <class O>
inline constexpr bool eltwise_from_y = O::from_y && !std::is_same_v<O, SoftplusOp>;

/// Prepared state: both passes and their scratch.
struct EltwiseCalls {
  onednn::Scratch scratch;
  onednn::Eltwise calls;
  std::size_t scratch_bytes() const { return scratch.bytes(); }
};

}  // namespace detail

template <detail::HasEltwise O, class P>
struct Kernel<O, BasicCpu<P>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCpu<P>;
  using Prepared = detail::EltwiseCalls;
  static constexpr bool keeps_y = detail::eltwise_from_y<O>, keeps_x = !keeps_y, in_place = keeps_y;

  static Prepared prepare(const O& op, typename D::Context& context, std::size_t count) {
    Prepared prepared;
    if (count == 0) return prepared;
    const auto scope = context.scope();
    const detail::onednn::Site at{"an activation", op.out(), context.engine()};
    const auto size = static_cast<std::ptrdiff_t>(count * op.in.size());
    detail::onednn::EltwiseFunction f = detail::eltwise_function(op);
    f.from_y = keeps_y;
    prepared.calls = detail::onednn::eltwise(
        at, f, {at, detail::onednn::data_type<ActivationOf<D>>(), {size}, dnnl_a},
        prepared.scratch);
    return prepared;
  }
  static void forward(const O&, const Io<D>& io, Prepared& prepared) {
    if (io.step.count == 0) return;
    prepared.calls.forward(io.device.stream(), io.scratch, {io.x, io.y});
  }
  static void backward(const O&, const Io<D>& io, Prepared& prepared) {
    if (io.step.count == 0 || io.dx == nullptr) return;
    prepared.calls.backward(io.device.stream(), io.scratch, {keeps_y ? io.y : io.x, io.dy, io.dx});
  }
};

static_assert(HasKernel<ReLUOp, Cpu> && HasKernel<GELUOp, Cpu>);

}  // namespace lockstep
