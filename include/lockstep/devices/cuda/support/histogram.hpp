/// \file
/// Histogram metrics on a GPU: AUC, ConfusionMatrix. Invariants: counts are atomic additions of 1,
/// exact in any order; sample weights are added by a single block in the order of the entries, so
/// the result equals the host's bit by bit.
///
/// CudaText<Op> of such a metric has `entries(op)`, the number of entries per prediction, and
/// defines `int place(const float* p, const Target* t, int lane)`, the index of the state to which
/// an entry adds its weight; entries with an ignored label add nothing. With one entry per
/// prediction the whole warp calls it; with several, one thread calls it for p[0] and t[0].
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/metric.hpp"
#include "lockstep/devices/cuda/ops/loss.hpp"
#include "lockstep/metrics/auc.hpp"
#include "lockstep/metrics/confusion_matrix.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr char histogram_text[] = R"cuda(
#if ENTRIES == 1
#define LANES 32
#else
#define LANES 1
#endif
// Entries per block, as in the launch below.
#define SHARE (1024 / LANES < 256 ? 1024 / LANES : 256)

// Writes the state indices of n entries, starting with the first.
__device__ void find_places(const float* p, const Given* t, i64 first, int n, int* places) {
  const int lane = threadIdx.x % LANES;
  for (int e = threadIdx.x / LANES; e < n; e += blockDim.x / LANES) {
    const i64 at = first + e;
    const TargetsAt<TARGETS / ENTRIES> target(t, at * (TARGETS / ENTRIES));
    const int there =
        is_ignored(target) ? -1 : place(p + P_AT(at * (SIZE / ENTRIES)), target, lane);
    if (lane == 0) places[e] = there;
  }
  __syncthreads();
}

// Adds 1 per entry; each block handles SHARE entries at a time.
KERNEL(counts)(const float* p, const Given* t, double* state, i64 entries) {
  __shared__ int places[SHARE];
  for (i64 first = (i64)blockIdx.x * SHARE; first < entries; first += (i64)gridDim.x * SHARE) {
    const int n = (int)(entries - first < SHARE ? entries - first : SHARE);
    find_places(p, t, first, n, places);
    for (int e = threadIdx.x; e < n; e += blockDim.x)
      if (places[e] >= 0) atomicAdd(state + places[e], 1.0);
    __syncthreads();
  }
}

// A single block processes the entries in order; each element of the state belongs to one thread.
KERNEL(weights)(const float* p, const Given* t, const float* w, double* state, i64 entries) {
  __shared__ int places[SHARE];
  __shared__ float weight[SHARE];
  for (i64 first = 0; first < entries; first += SHARE) {
    const int n = (int)(entries - first < SHARE ? entries - first : SHARE);
    for (int e = threadIdx.x; e < n; e += blockDim.x) weight[e] = w[W_AT((first + e) / WEIGHED)];
    find_places(p, t, first, n, places);
    for (int e = 0; e < n; ++e)
      if (places[e] >= 0 && (u32)places[e] % blockDim.x == threadIdx.x) state[places[e]] += weight[e];
    __syncthreads();
  }
}
)cuda";

}  // namespace detail::cuda

template <RowwiseMetric Op, class Precision>
  requires HasCudaText<Op> && requires(const Op& op) { CudaText<Op>::entries(op); }
struct Kernel<Op, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  static constexpr bool weighs = true;
  /// Without sample weights in parallel; with them in a single block, for the order of the sums.
  template <class Target, class Place = detail::cuda::RowsInOrder>
  static void run(const Op& whole, const MetricIo<BasicCuda<Precision>, Target>& io,
                  const Place& place = {}) {
    using detail::cuda::SumWorkspace;
    if (io.count == 0) return;
    constexpr detail::cuda::Source source{"histogram", detail::cuda::histogram_text,
                                          CudaText<Op>::functions};
    const detail::cuda::RowsOf<Op> row(whole, is_by_rows<Op>);
    const std::size_t entries = CudaText<Op>::entries(row.op);
    const auto defines = place.placed(detail::cuda::with_define(
        detail::cuda::with_define(detail::cuda::row_defines(row.op, CudaText<Op>::defines(row.op)),
                                  {"ENTRIES", entries}),
        {"WEIGHED", row.rows * entries / io.weights}));
    const std::size_t count = io.count * row.rows * entries;
    const auto all = static_cast<std::int64_t>(count);
    if (io.weight == nullptr)
      io.device.launch(io.device.kernel(source, "counts", defines),
                       SumWorkspace::grid(count, entries == 1 ? 32 : 256), io.prediction, io.target,
                       io.state, all);
    else
      io.device.launch(io.device.kernel(source, "weights", defines),
                       detail::cuda::Grid{{1, 1, 1}, {256, 1, 1}}, io.prediction, io.target,
                       io.weight, io.state, all);
  }
};

/// State: BUCKETS counts of positives by threshold, then BUCKETS counts of negatives.
template <class Target>
struct CudaText<AUCOp<Target>> {
  static constexpr char functions[] = R"cuda(
__device__ int place(const float* p, const Target* t, int) {
  // Bucket b holds values in (b / BUCKETS, (b + 1) / BUCKETS]; NaN goes to the lowest.
  const float v = FROM_LOGITS ? 1 / (1 + expf(-p[0])) : p[0];
  const float at = ceilf(v * (float)BUCKETS) - 1;
  const int b = !(at > 0) ? 0 : at >= (float)BUCKETS ? BUCKETS - 1 : (int)at;
  return b + (t[0] != 0 ? 0 : BUCKETS);
}
)cuda";
  static std::size_t entries(const AUCOp<Target>& op) { return op.elements; }
  static std::array<CudaDefine, 2> defines(const AUCOp<Target>& op) {
    return {{{"BUCKETS", op.thresholds - 1}, {"FROM_LOGITS", op.from_logits ? 1 : 0}}};
  }
};

/// State: (labels, predictions), row-major.
template <class Target>
struct CudaText<ConfusionMatrixOp<Target>> {
  static constexpr char functions[] = R"cuda(
__device__ int place(const float* p, const Target* t, int lane) {
#if LABELS
  const int label = t[0];
#else
  const int label = warp_argmax(t, SIZE, lane);
#endif
  return label * SIZE + warp_argmax(p, SIZE, lane);
}
)cuda";
  static std::size_t entries(const ConfusionMatrixOp<Target>&) { return 1; }
  static std::array<CudaDefine, 0> defines(const ConfusionMatrixOp<Target>&) { return {}; }
};

static_assert(HasKernel<AUCOp<float>, Cuda> && HasKernel<ConfusionMatrixOp<std::int32_t>, Cuda>);

}  // namespace lockstep
