/// \file
/// Metrics that are histograms, on a GPU: AUC, ConfusionMatrix. Invariants: counts are added by
/// atomic additions of 1, exact in any order; weights are added in an order that the sizes alone
/// decide, so that the same bits come out: each block adds its entries to numbers of its own, in
/// their order, and these are added in the order of the blocks.
///
/// CudaText<Op> of such a metric has `entries(op)`, the number of entries of a prediction, and
/// `states(op)`, that of the state's numbers; it defines `int place(const float* p, const Target*
/// t, int lane)`: to which number of the state an entry adds its weight. With one entry the whole
/// warp is asked, with several one thread, for p[0] and t[0].
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/metric.hpp"
#include "lockstep/devices/cuda/memory.hpp"
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
#define TILE 256
#define SHARE (1024 / LANES < 256 ? 1024 / LANES : 256)  // as on the host, below

// The places of n entries from the first on.
__device__ void look(const float* p, const Target* t, i64 first, int n, int* places) {
  const int lane = threadIdx.x % LANES;
  for (int e = threadIdx.x / LANES; e < n; e += blockDim.x / LANES) {
    const i64 at = first + e;
    const int there = place(p + at * (SIZE / ENTRIES), t + at * (TARGETS / ENTRIES), lane);
    if (lane == 0) places[e] = there;
  }
  __syncthreads();
}

KERNEL(counts)(const float* p, const Target* t, double* state, i64 entries) {
  __shared__ int places[SHARE];
  for (i64 first = (i64)blockIdx.x * SHARE; first < entries; first += (i64)gridDim.x * SHARE) {
    const int n = (int)(entries - first < SHARE ? entries - first : SHARE);
    look(p, t, first, n, places);
    for (int e = threadIdx.x; e < n; e += blockDim.x) atomicAdd(state + places[e], 1.0);
    __syncthreads();
  }
}

// The first entry of a tile that has a place adds all that have it, in their order. A single block
// adds to the state itself.
KERNEL(weights)(const float* p, const Target* t, const float* w, double* parts, i64 entries,
                i64 states) {
  __shared__ int places[TILE];
  __shared__ float weight[TILE];
  double* const own = parts + blockIdx.x * states;
  if (gridDim.x > 1)
    for (i64 k = threadIdx.x; k < states; k += blockDim.x) own[k] = 0;
  for (i64 first = (i64)blockIdx.x * TILE; first < entries; first += (i64)gridDim.x * TILE) {
    const int n = (int)(entries - first < TILE ? entries - first : TILE);
    for (int e = threadIdx.x; e < n; e += blockDim.x) weight[e] = w[(first + e) / ENTRIES];
    look(p, t, first, n, places);
    for (int e = threadIdx.x; e < n; e += blockDim.x) {
      const int mine = places[e];
      bool is_first = true;
      double sum = 0;
      for (int i = 0; i < n; ++i) {
        if (places[i] != mine) continue;
        is_first &= i >= e;
        sum += weight[i];
      }
      if (is_first) own[mine] += sum;
    }
    __syncthreads();
  }
}
KERNEL(add_blocks)(const double* __restrict__ parts, int blocks, double* state, i64 states) {
  for (i64 k = INDEX; k < states; k += STRIDE) {
    double sum = 0;
    for (int b = 0; b < blocks; ++b) sum += parts[b * states + k];
    state[k] += sum;
  }
}
)cuda";

/// What the blocks of a weighted histogram have added; kernels that use it run one after the other.
class HistogramRoom {
 public:
  static constexpr std::size_t tile = 256;  // as in the text, above

  [[gnu::cold]] HistogramRoom() : room_(take_memory(most * sizeof(double))) {}
  ~HistogramRoom() { driver().cuMemFree(room_); }
  HistogramRoom(const HistogramRoom&) = delete;
  HistogramRoom& operator=(const HistogramRoom&) = delete;
  double* get() const { return reinterpret_cast<double*>(room_); }

  /// As many as have work, but no more than have room, and are soon added.
  static std::size_t blocks(std::size_t entries, std::size_t states) {
    return std::clamp<std::size_t>((entries + tile - 1) / tile, 1,
                                   std::clamp<std::size_t>(most / states, 1, most_blocks));
  }

 private:
  static constexpr std::size_t most = 1 << 17, most_blocks = 128;
  CUdeviceptr room_;
};

}  // namespace detail::cuda

template <RowwiseMetric Op, class Precision>
  requires HasCudaText<Op> && requires(const Op& op) { CudaText<Op>::entries(op); }
struct Kernel<Op, BasicCuda<Precision>> : KernelTraits {
  static constexpr bool weighs = true;
  [[gnu::noinline]] static void run(
      const Op& op, const MetricIo<BasicCuda<Precision>, typename Op::target_type>& io) {
    using detail::cuda::SumRoom;
    if (io.count == 0) return;
    constexpr detail::cuda::Source source{"histogram", detail::cuda::histogram_text,
                                          CudaText<Op>::functions};
    const std::size_t entries = CudaText<Op>::entries(op);
    const auto defines = detail::cuda::with_define(
        detail::cuda::row_defines(op, CudaText<Op>::defines(op)), {"ENTRIES", entries});
    const auto all = static_cast<std::int64_t>(io.count * entries);
    if (io.weight == nullptr)
      io.device.launch(io.device.kernel(source, "counts", defines),
                       SumRoom::grid(io.count * entries, entries == 1 ? 32 : 256), io.prediction,
                       io.target, io.state, all);
    else
      add_weights(io, CudaText<Op>::states(op), io.count * entries,
                  [&](const char* entry) { return io.device.kernel(source, entry, defines); });
  }

 private:
  template <class Io, class Find>
  static void add_weights(const Io& io, std::size_t states, std::size_t entries,
                          const Find& kernel) {
    using detail::cuda::Grid, detail::cuda::HistogramRoom;
    const auto size = static_cast<std::int64_t>(states);
    const std::size_t blocks = HistogramRoom::blocks(entries, states);
    double* const parts = blocks == 1 ? io.state : io.device.template handle<HistogramRoom>().get();
    io.device.launch(
        kernel("weights"), Grid{{static_cast<unsigned>(blocks), 1, 1}, {HistogramRoom::tile, 1, 1}},
        io.prediction, io.target, io.weight, parts, static_cast<std::int64_t>(entries), size);
    if (blocks > 1)
      io.device.launch(kernel("add_blocks"), Grid::over(states), parts, static_cast<int>(blocks),
                       io.state, size);
  }
};

template <class Target>
struct CudaText<AUCOp<Target>> {
  static constexpr char functions[] = R"cuda(
__device__ int place(const float* p, const Target* t, int) {
  // Above threshold b, which is b / BUCKETS, and not above the next; NaN with the lowest.
  const float v = FROM_LOGITS ? 1 / (1 + expf(-p[0])) : p[0];
  const float at = ceilf(v * (float)BUCKETS) - 1;
  const int b = !(at > 0) ? 0 : at >= (float)BUCKETS ? BUCKETS - 1 : (int)at;
  return b + (t[0] != 0 ? 0 : BUCKETS);
}
)cuda";
  static std::size_t entries(const AUCOp<Target>& op) { return op.elements; }
  static std::size_t states(const AUCOp<Target>& op) {
    return 2 * static_cast<std::size_t>(op.thresholds - 1);
  }
  static std::array<CudaDefine, 2> defines(const AUCOp<Target>& op) {
    return {{{"BUCKETS", op.thresholds - 1}, {"FROM_LOGITS", op.from_logits ? 1 : 0}}};
  }
};

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
  static std::size_t states(const ConfusionMatrixOp<Target>& op) { return op.size() * op.size(); }
  static std::array<CudaDefine, 0> defines(const ConfusionMatrixOp<Target>&) { return {}; }
};

static_assert(HasKernel<AUCOp<float>, Cuda> && HasKernel<ConfusionMatrixOp<std::int32_t>, Cuda>);

}  // namespace lockstep
