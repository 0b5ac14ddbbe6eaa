/// \file
/// Element-wise optimizers on a GPU. Invariants: one launch updates all parameters, whatever their
/// penalties. Numbers that change from step to step are kernel arguments; numbers that differ
/// between ranges of weights are a table in GPU memory. A penalty's gradient is added here and
/// stored in the gradient.
///
///     g += l1 * sign(w) + 2 * l2 * w;   w -= decay * w;   rule(w, clip(scale * g), slots)
///
/// CudaText<Op> defines `struct Rule`, laid out as `Op::Rule<float>`, with a member `void
/// operator()(float& w, float g, float&... slot) const` for each number of slots.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/buffer_ranges.hpp"
#include "lockstep/devices/cuda/support/scalar_text.hpp"

namespace lockstep {

namespace detail::cuda {

/// Per-range settings applied before the rule, see UpdateIo. Laid out as `Range` in the text.
struct UpdateRange {
  std::int64_t begin, end;
  float l1, l2, decay, scale, limit;
  std::int32_t unused = 0;
};
/// Factors common to all ranges, which may change from step to step. A kernel argument.
struct UpdateFactors {
  float decay = 1, scale = 1;
  std::int32_t adjusts = 0;
};

/// Specialised by SLOTS, PENALISED and ALIGNED (loads of four elements).
inline constexpr char update_text[] = R"cuda(
struct Range {
  i64 begin, end;
  float l1, l2, decay, scale, limit;
  int unused;
};
struct Factors {
  float decay, scale;
  int adjusts;
};
// Updates one element.
__device__ inline void one(const Rule& rule, const Range& range, const Factors& factors, float& w,
                           float& g, float& a, float& b, float& c, float& d) {
#if PENALISED
  g += (w > 0 ? range.l1 : w < 0 ? -range.l1 : 0.0f) + 2 * range.l2 * w;
#endif
  float seen = g;
  if (factors.adjusts) {
    w -= factors.decay * range.decay * w;
    seen *= factors.scale * range.scale;
    seen = seen < -range.limit ? -range.limit : seen > range.limit ? range.limit : seen;
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

// Updates vectors of N elements, from `first` to before `n`. Elements between ranges are unchanged.
template <int N>
struct __align__(N * sizeof(float)) Some {
  float at[N];
};
template <int N>
__device__ inline void update_some(const Rule& rule, const Range* __restrict__ ranges, int count,
                                   const Factors& factors, float* w, float* g, float* s0, float* s1,
                                   float* s2, float* s3, i64 first, i64 n) {
  typedef Some<N> V;
  for (i64 i = first + INDEX; i < n; i += STRIDE) {
    V weights = ((V*)w)[i], gradients = ((V*)g)[i], a, b, c, d;
    if (SLOTS > 0) a = ((V*)s0)[i];
    if (SLOTS > 1) b = ((V*)s1)[i];
    if (SLOTS > 2) c = ((V*)s2)[i];
    if (SLOTS > 3) d = ((V*)s3)[i];
    int place = range_at(ranges, count, i * N);
    for (int k = 0; k < N; ++k) {
      while (place + 1 < count && ranges[place + 1].begin <= i * N + k) ++place;
      if (i * N + k < ranges[place].end)
        one(rule, ranges[place], factors, weights.at[k], gradients.at[k], a.at[k], b.at[k], c.at[k],
            d.at[k]);
    }
    ((V*)w)[i] = weights;
    if (PENALISED) ((V*)g)[i] = gradients;
    if (SLOTS > 0) ((V*)s0)[i] = a;
    if (SLOTS > 1) ((V*)s1)[i] = b;
    if (SLOTS > 2) ((V*)s2)[i] = c;
    if (SLOTS > 3) ((V*)s3)[i] = d;
  }
}

KERNEL(update)(Rule rule, const Range* __restrict__ ranges, int count, Factors factors, float* w,
               float* g, float* s0, float* s1, float* s2, float* s3, i64 n) {
#if ALIGNED
  update_some<4>(rule, ranges, count, factors, w, g, s0, s1, s2, s3, 0, n / 4);
  update_some<1>(rule, ranges, count, factors, w, g, s0, s1, s2, s3, n / 4 * 4, n);
#else
  update_some<1>(rule, ranges, count, factors, w, g, s0, s1, s2, s3, 0, n);
#endif
}
)cuda";

/// Collects the ranges of an update and the factors that they share.
template <class D>
class UpdateRanges {
 public:
  /// Fills `ranges`, the table of the context.
  explicit UpdateRanges(Ranges<UpdateRange>& ranges) : ranges_(&ranges) {}

  /// Returns false if there is nothing to update.
  bool build(std::span<const UpdateIo<D>> parts) {
    bool one_decay = true, one_scale = true;
    for (const UpdateIo<D>& io : parts) {
      one_decay = one_decay && (io.decay == 0 || decay_ == 0 || io.decay == decay_);
      one_scale = one_scale && io.scale == parts.front().scale;
      if (io.decay != 0) decay_ = io.decay;
      is_penalised |= bool(io.penalty);
      factors.adjusts |= io.is_adjusted() ? 1 : 0;
    }
    // A value common to all parts becomes an argument: it changes from step to step, the table does
    // not.
    if (one_decay && decay_ != 0) factors.decay = static_cast<float>(decay_);
    if (one_scale) factors.scale = static_cast<float>(parts.front().scale);
    ranges_->clear();
    for (const UpdateIo<D>& io : parts) {
      if (io.size == 0) continue;
      if (first == nullptr) first = &io;
      const std::int64_t begin = io.w - first->w;
      size = static_cast<std::size_t>(begin) + io.size;
      ranges_->add({begin, static_cast<std::int64_t>(size), static_cast<float>(io.penalty.l1),
                    static_cast<float>(io.penalty.l2),
                    one_decay ? (io.decay != 0 ? 1.0f : 0.0f) : static_cast<float>(io.decay),
                    one_scale ? 1.0f : static_cast<float>(io.scale), static_cast<float>(io.limit)});
    }
    return first != nullptr;
  }

  const UpdateIo<D>* first = nullptr;  ///< the first part that is not empty
  std::size_t size = 0;                ///< elements from there on
  bool is_penalised = false;
  UpdateFactors factors{};

 private:
  Ranges<UpdateRange>* ranges_;
  double decay_ = 0;
};

}  // namespace detail::cuda

template <ElementwiseUpdate Op, class Precision>
  requires HasCudaText<Op>
struct Kernel<Op, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  /// Updates a single part.
  static void update(const Op& op, const UpdateIo<BasicCuda<Precision>>& io) {
    update_all(op, {&io, 1});
  }
  /// Updates all parts in one launch.
  static void update_all(const Op& op, std::span<const UpdateIo<BasicCuda<Precision>>> parts) {
    using detail::cuda::with_define;
    static_assert(std::is_trivially_copyable_v<decltype(op.template rule<float>())>);
    if (parts.empty()) return;
    CudaContext& device = parts.front().device;
    auto& ranges = device.template handle<detail::cuda::Ranges<detail::cuda::UpdateRange>>();
    detail::cuda::UpdateRanges<BasicCuda<Precision>> all(ranges);
    if (!all.build(parts)) return;
    const UpdateIo<BasicCuda<Precision>>& io = *all.first;
    constexpr detail::cuda::Source source{"optimizer", detail::cuda::update_text,
                                          CudaText<Op>::functions};
    const bool aligned = is_aligned(io);
    const auto own = with_define(CudaText<Op>::defines(op), {"SLOTS", op.slot_count()});
    const auto defines = with_define(with_define(own, {"ALIGNED", aligned ? 1 : 0}),
                                     {"PENALISED", all.is_penalised ? 1 : 0});
    device.launch(device.kernel(source, "update", defines),
                  detail::cuda::Grid::over(aligned ? (all.size + 3) / 4 : all.size),
                  op.template rule<float>(), ranges.upload(device), ranges.count(), all.factors,
                  io.w, io.g, io.slot[0], io.slot[1], io.slot[2], io.slot[3],
                  static_cast<std::int64_t>(all.size));
  }

 private:
  /// Whether all buffers allow loads of four elements.
  static bool is_aligned(const UpdateIo<BasicCuda<Precision>>& io) {
    std::uintptr_t all =
        reinterpret_cast<std::uintptr_t>(io.w) | reinterpret_cast<std::uintptr_t>(io.g);
    for (const float* slot : io.slot) all |= reinterpret_cast<std::uintptr_t>(slot);
    return all % (4 * sizeof(float)) == 0;
  }
};

}  // namespace lockstep
