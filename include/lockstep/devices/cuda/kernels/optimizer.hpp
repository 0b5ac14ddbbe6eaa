/// \file
/// Element-wise optimizers on a GPU. Invariants: one pass over weights, gradients and slots; the
/// numbers of an update are arguments of the launch, since they change from step to step; the
/// penalty's gradient is added there and left in the gradient.
///
/// CudaText<Op> defines `struct Rule`, laid out as `Op::Rule<float>`, with a member
/// `void operator()(float& w, float g, float&... slot) const` for each number of slots.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/kernels/adjust.hpp"
#include "lockstep/devices/cuda/kernels/scalar_text.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr char update_text[] = R"cuda(
struct Adjust {
  float l1, l2, decay, scale, limit;
  int adjusts;
};
KERNEL(update)(Rule rule, Adjust adjust, float* __restrict__ w, float* __restrict__ g,
               float* __restrict__ s0, float* __restrict__ s1, float* __restrict__ s2,
               float* __restrict__ s3, i64 n) {
  for (i64 i = INDEX; i < n; i += STRIDE) {
    float weight = w[i], seen = g[i];
#if PENALISED
    seen += (weight > 0 ? adjust.l1 : weight < 0 ? -adjust.l1 : 0.0f) + 2 * adjust.l2 * weight;
    g[i] = seen;
#endif
    if (adjust.adjusts) {
      weight -= adjust.decay * weight;
      seen *= adjust.scale;
      seen = seen < -adjust.limit ? -adjust.limit : seen > adjust.limit ? adjust.limit : seen;
    }
#if SLOTS == 0
    rule(weight, seen);
#else
    float a = s0[i];
#if SLOTS == 1
    rule(weight, seen, a);
#else
    float b = s1[i];
#if SLOTS == 2
    rule(weight, seen, a, b);
#else
    float c = s2[i];
#if SLOTS == 3
    rule(weight, seen, a, b, c);
#else
    float d = s3[i];
    rule(weight, seen, a, b, c, d);
    s3[i] = d;
#endif
    s2[i] = c;
#endif
    s1[i] = b;
#endif
    s0[i] = a;
#endif
    w[i] = weight;
  }
}
)cuda";

}  // namespace detail::cuda

template <ElementwiseUpdate Op, class Precision>
requires HasCudaText<Op>
struct Kernel<Op, BasicCuda<Precision>> : KernelTraits {
  [[gnu::noinline]] static void update(const Op& op, const UpdateIo<BasicCuda<Precision>>& io) {
    using detail::cuda::Define;
    static_assert(std::is_trivially_copyable_v<decltype(op.template rule<float>())>);
    if (io.size == 0) return;
    constexpr detail::cuda::Source source{"optimizer", detail::cuda::update_text,
                                          CudaText<Op>::functions};
    const auto own = detail::cuda::with_define(CudaText<Op>::defines(op), {"SLOTS", op.slots()});
    const auto defines = detail::cuda::with_define(own, {"PENALISED", io.penalty ? 1 : 0});
    io.device.launch(io.device.kernel(source, "update", defines), detail::cuda::Grid::over(io.size),
                     op.template rule<float>(), detail::cuda::adjust_of(io), io.w, io.g, io.slot[0],
                     io.slot[1], io.slot[2], io.slot[3], static_cast<std::int64_t>(io.size));
  }
};

}  // namespace lockstep
