/// \file
/// Pointwise activations on the CPU, by oneDNN's element-wise primitives; see also
/// smooth_activations.hpp. An activation in neither, such as a user-defined one, runs in the loops
/// of devices/host. The forward passes of ReLU and ReLU6 are hand-written loops, since oneDNN's map
/// NaN to 0.
#pragma once

#include <concepts>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/elements.hpp"
#include "lockstep/devices/cpu/onednn.hpp"
#include "lockstep/devices/host/pointwise.hpp"
#include "lockstep/layers/activations/leaky_relu.hpp"
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/layers/activations/relu6.hpp"
#include "lockstep/layers/activations/sigmoid.hpp"
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
inline onednn::EltwiseFunction eltwise_function(const TanhOp&) {
  return {dnnl_eltwise_tanh_use_dst_for_bwd};
}
inline onednn::EltwiseFunction eltwise_function(const SigmoidOp&) {
  return {dnnl_eltwise_logistic_use_dst_for_bwd};
}

/// Whether oneDNN has a primitive for O.
template <class O>
concept HasEltwise = requires(const O& op) { eltwise_function(op); };

/// The largest result of a ReLU with forward passes of lockstep's own; 0 for other activations.
template <class O>
inline constexpr float rectified_up_to =
    std::is_same_v<O, ReLU6Op>  ? 6.0f
    : std::is_same_v<O, ReLUOp> ? std::numeric_limits<float>::infinity()
                                : 0.0f;

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
  static constexpr bool keeps_y = O::from_y, keeps_x = !keeps_y, in_place = keeps_y;

  template <std::same_as<ForwardOnly>... Only>
  static Prepared prepare(const O& op, typename D::Context& context, std::size_t count, Only...) {
    Prepared prepared;
    constexpr bool is_rectified = detail::rectified_up_to<O> > 0;
    if (count == 0 || (is_rectified && sizeof...(Only) > 0)) return prepared;
    const auto scope = context.scope();
    const detail::onednn::Site at{"an activation", op.out(), context.engine()};
    const auto size = static_cast<std::ptrdiff_t>(count * op.in.size());
    detail::onednn::EltwiseFunction f = detail::eltwise_function(op);
    f.from_y = keeps_y;
    const detail::onednn::MemoryDesc data(at, detail::onednn::data_type<ActivationOf<D>>(), {size},
                                          dnnl_a);
    if constexpr (sizeof...(Only) > 0)
      prepared.calls.forward = detail::onednn::eltwise_forward(at, f, data, prepared.scratch);
    else
      prepared.calls = detail::onednn::eltwise(at, f, data, prepared.scratch);
    return prepared;
  }
  static void forward(const O& op, const Io<D>& io, Prepared& prepared) {
    if (io.step.count == 0) return;
    constexpr float most = detail::rectified_up_to<O>;
    if constexpr (most > 0)
      detail::rectify(io.device.threads(), io.x[0], io.y, io.step.count * op.in.size(), most);
    else
      prepared.calls.forward(io.device.stream(), io.scratch, {io.x[0], io.y});
  }
  static void backward(const O&, const Io<D>& io, Prepared& prepared) {
    if (io.step.count == 0 || io.dx[0] == nullptr) return;
    prepared.calls.backward(io.device.stream(), io.scratch,
                            {keeps_y ? io.y : io.x[0], io.dy, io.dx[0]});
  }
};

static_assert(HasKernel<ReLUOp, Cpu> && HasKernel<TanhOp, Cpu>);

}  // namespace lockstep
