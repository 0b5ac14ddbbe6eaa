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
__device__ inline void one(const Rule& rule, const Adjust& adjust, float& w, float& g, float& a,
                           float& b, float& c, float& d) {
#if PENALISED
  g += (w > 0 ? adjust.l1 : w < 0 ? -adjust.l1 : 0.0f) + 2 * adjust.l2 * w;
#endif
  float seen = g;
  if (adjust.adjusts) {
    w -= adjust.decay * w;
    seen *= adjust.scale;
    seen = seen < -adjust.limit ? -adjust.limit : seen > adjust.limit ? adjust.limit : seen;
  }
#if SLOTS == 0
  rule(w, seen);
#elif SLOTS == 1
  rule(w, seen, a);
#elif SLOTS == 2
  rule(w, seen, a, b);
#elif SLOTS == 3
  rule(w, seen, a, b, c);
#else
  rule(w, seen, a, b, c, d);
#endif
}

// Vectors of N elements from the first to before the n-th.
template <int N>
struct __align__(N * sizeof(float)) Some {
  float at[N];
};
template <int N>
__device__ inline void update_some(const Rule& rule, const Adjust& adjust, float* w, float* g,
                                   float* s0, float* s1, float* s2, float* s3, i64 first, i64 n) {
  typedef Some<N> V;
  for (i64 i = first + INDEX; i < n; i += STRIDE) {
    V weights = ((V*)w)[i], gradients = ((V*)g)[i], a, b, c, d;
    if (SLOTS > 0) a = ((V*)s0)[i];
    if (SLOTS > 1) b = ((V*)s1)[i];
    if (SLOTS > 2) c = ((V*)s2)[i];
    if (SLOTS > 3) d = ((V*)s3)[i];
    for (int k = 0; k < N; ++k)
      one(rule, adjust, weights.at[k], gradients.at[k], a.at[k], b.at[k], c.at[k], d.at[k]);
    ((V*)w)[i] = weights;
    if (PENALISED) ((V*)g)[i] = gradients;
    if (SLOTS > 0) ((V*)s0)[i] = a;
    if (SLOTS > 1) ((V*)s1)[i] = b;
    if (SLOTS > 2) ((V*)s2)[i] = c;
    if (SLOTS > 3) ((V*)s3)[i] = d;
  }
}

KERNEL(update)(Rule rule, Adjust adjust, float* w, float* g, float* s0, float* s1, float* s2,
               float* s3, i64 n) {
#if ALIGNED
  update_some<4>(rule, adjust, w, g, s0, s1, s2, s3, 0, n / 4);
  update_some<1>(rule, adjust, w, g, s0, s1, s2, s3, n / 4 * 4, n);
#else
  update_some<1>(rule, adjust, w, g, s0, s1, s2, s3, 0, n);
#endif
}
)cuda";

}  // namespace detail::cuda

template <ElementwiseUpdate Op, class Precision>
requires HasCudaText<Op>
struct Kernel<Op, BasicCuda<Precision>> : KernelTraits {
  [[gnu::noinline]] static void update(const Op& op, const UpdateIo<BasicCuda<Precision>>& io) {
    using detail::cuda::with_define;
    static_assert(std::is_trivially_copyable_v<decltype(op.template rule<float>())>);
    if (io.size == 0) return;
    constexpr detail::cuda::Source source{"optimizer", detail::cuda::update_text,
                                          CudaText<Op>::functions};
    const bool aligned = is_aligned(io);
    const auto own = with_define(CudaText<Op>::defines(op), {"SLOTS", op.slots()});
    const auto defines = with_define(with_define(own, {"ALIGNED", aligned ? 1 : 0}),
                                     {"PENALISED", io.penalty ? 1 : 0});
    io.device.launch(io.device.kernel(source, "update", defines),
                     detail::cuda::Grid::over(aligned ? (io.size + 3) / 4 : io.size),
                     op.template rule<float>(), detail::cuda::adjust_of(io), io.w, io.g, io.slot[0],
                     io.slot[1], io.slot[2], io.slot[3], static_cast<std::int64_t>(io.size));
  }

 private:
  /// Whether four elements can be read at once.
  static bool is_aligned(const UpdateIo<BasicCuda<Precision>>& io) {
    std::uintptr_t all =
        reinterpret_cast<std::uintptr_t>(io.w) | reinterpret_cast<std::uintptr_t>(io.g);
    for (const float* slot : io.slot) all |= reinterpret_cast<std::uintptr_t>(slot);
    return all % (4 * sizeof(float)) == 0;
  }
};

}  // namespace lockstep
