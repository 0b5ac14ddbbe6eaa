/// \file
/// Metrics on a GPU. Invariants: a warp computes a row, which is an example or one of its
/// positions; rows are added in double, in an order that
/// depends only on the shape.
///
/// CudaText<Op> of a row-wise metric defines `void row(const float* p, const Target* t, double*
/// part, int lane)`. All lanes of a warp, 0 to 31, call it; lane 0 writes what a row of weight 1
/// adds to each of the `CudaText<Op>::state` numbers, at most 4. `Target` is float, or int for
/// labels; SIZE is the number of elements of a row of predictions.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/metric.hpp"
#include "lockstep/devices/cuda/ops/loss.hpp"
#include "lockstep/metrics/accuracy.hpp"
#include "lockstep/metrics/binary_accuracy.hpp"
#include "lockstep/metrics/binary_counts.hpp"
#include "lockstep/metrics/mean_cosine_similarity.hpp"
#include "lockstep/metrics/root_mean_squared_error.hpp"
#include "lockstep/metrics/top_k_categorical_accuracy.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr char metric_text[] = R"cuda(
// state += the weighted sum of all rows; only lane 0 of each warp accumulates. One sample weight
// belongs to WEIGHED rows.
KERNEL(metric)(const float* p, const Given* t, const float* w, double* state, Sums* workspace,
               i64 count) {
  double x[STATE] = {};
  const int lane = threadIdx.x % 32;
  for (i64 n = INDEX / 32; n < count; n += STRIDE / 32) {
    const TargetsAt<TARGETS> target(t, n * TARGETS);
    if (is_ignored(target)) continue;
    double part[STATE];
    row(p + P_AT(n * SIZE), target, part, lane);
    const double weight = w ? w[W_AT(n / WEIGHED)] : 1.0;
    for (int k = 0; k < STATE; ++k)
      if (lane == 0) x[k] += weight * part[k];
  }
  if (!grid_sum(x, workspace) || threadIdx.x != 0) return;
  for (int k = 0; k < STATE; ++k) state[k] += x[k];
}
)cuda";

}  // namespace detail::cuda

template <RowwiseMetric Op, class Precision>
  requires HasCudaText<Op> && requires { CudaText<Op>::state; }
struct Kernel<Op, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  static constexpr bool weighs = true;
  /// Adds a batch to the state, in one launch.
  template <class Target, class Place = detail::cuda::RowsInOrder>
  static void run(const Op& whole, const MetricIo<BasicCuda<Precision>, Target>& io,
                  const Place& place = {}) {
    using detail::cuda::SumWorkspace;
    if (io.count == 0) return;
    static_assert(CudaText<Op>::state <= SumWorkspace::max_sums);
    constexpr detail::cuda::Source source{"metric", detail::cuda::metric_text,
                                          CudaText<Op>::functions};
    const detail::cuda::RowsOf<Op> row(whole, is_by_rows<Op> || io.weights > 1);
    const std::size_t rows = io.count * row.rows;
    const auto defines = place.placed(detail::cuda::with_define(
        detail::cuda::with_define(detail::cuda::row_defines(row.op, CudaText<Op>::defines(row.op)),
                                  {"STATE", CudaText<Op>::state}),
        {"WEIGHED", row.rows / io.weights}));
    io.device.launch(io.device.kernel(source, "metric", defines), SumWorkspace::grid(rows, 8),
                     io.prediction, io.target, io.weight, io.state,
                     io.device.template handle<SumWorkspace>().get(),
                     static_cast<std::int64_t>(rows));
  }
};

/// (correct rows, rows): the class of the largest prediction, or p > 0.5 if there is one output.
template <class Target>
struct CudaText<AccuracyOp<Target>> {
  static constexpr int state = 2;
  static constexpr char functions[] = R"cuda(
__device__ void row(const float* p, const Target* t, double* part, int lane) {
#if SIZE == 1
  const bool right = (Target)(p[0] > 0.5f) == t[0];
#elif LABELS
  const bool right = warp_argmax(p, SIZE, lane) == t[0];
#else
  const bool right = warp_argmax(p, SIZE, lane) == warp_argmax(t, SIZE, lane);
#endif
  part[0] = right;
  part[1] = 1;
}
)cuda";
  static std::array<CudaDefine, 0> defines(const AccuracyOp<Target>&) { return {}; }
};

/// (correct rows, rows): fewer than k classes score higher than the label. A row with NaN is wrong.
template <class Target>
struct CudaText<TopKCategoricalAccuracyOp<Target>> {
  static constexpr int state = 2;
  static constexpr char functions[] = R"cuda(
__device__ void row(const float* p, const Target* t, double* part, int lane) {
#if LABELS
  const int label = t[0];
#else
  const int label = warp_argmax(t, SIZE, lane);
#endif
  const float own = p[label];
  int larger = 0;
  for (int k = lane; k < SIZE; k += 32) larger = p[k] != p[k] ? SIZE : larger + (p[k] > own);
  larger = warp_sum(larger);
  part[0] = larger < MOST;
  part[1] = 1;
}
)cuda";
  static std::array<CudaDefine, 1> defines(const TopKCategoricalAccuracyOp<Target>& op) {
    return {{{"MOST", std::min<std::size_t>(op.k, op.classes)}}};
  }
};

/// (correct elements, elements) for predictions above THRESHOLD.
template <class Target>
struct CudaText<BinaryAccuracyOp<Target>> {
  static constexpr int state = 2;
  static constexpr char functions[] = R"cuda(
__device__ void row(const float* p, const Target* t, double* part, int lane) {
  int right = 0;
  for (int k = lane; k < SIZE; k += 32) right += t[k] == (Target)(p[k] > THRESHOLD);
  part[0] = warp_sum(right);
  part[1] = SIZE;
}
)cuda";
  static std::array<CudaDefine, 1> defines(const BinaryAccuracyOp<Target>& op) {
    return {{{"THRESHOLD", op.threshold}}};
  }
};

/// (true positives, false positives, false negatives, elements), for Precision and Recall.
template <class Target>
struct CudaText<BinaryCountsOp<Target>> {
  static constexpr int state = 4;
  static constexpr char functions[] = R"cuda(
__device__ void row(const float* p, const Target* t, double* part, int lane) {
  int right = 0, wrong = 0, missed = 0;
  for (int k = lane; k < SIZE; k += 32) {
    const bool predicted = p[k] > THRESHOLD, is = t[k] != 0;
    right += predicted && is;
    wrong += predicted && !is;
    missed += !predicted && is;
  }
  part[0] = warp_sum(right);
  part[1] = warp_sum(wrong);
  part[2] = warp_sum(missed);
  part[3] = SIZE;
}
)cuda";
  static std::array<CudaDefine, 1> defines(const BinaryCountsOp<Target>& op) {
    return {{{"THRESHOLD", op.threshold}}};
  }
};

/// (sum of squared errors, elements); the root is taken when the metric is read.
template <>
struct CudaText<RootMeanSquaredErrorOp> {
  static constexpr int state = 2;
  static constexpr char functions[] = R"cuda(
__device__ void row(const float* p, const Target* t, double* part, int lane) {
  double sum = 0;
  for (int k = lane; k < SIZE; k += 32) {
    const double difference = (double)p[k] - (double)t[k];
    sum += difference * difference;
  }
  part[0] = warp_sum(sum);
  part[1] = SIZE;
}
)cuda";
  static std::array<CudaDefine, 0> defines(const RootMeanSquaredErrorOp&) { return {}; }
};

/// (sum of cosines, rows).
template <>
struct CudaText<MeanCosineSimilarityOp> {
  static constexpr int state = 2;
  static constexpr char functions[] = R"cuda(
__device__ void row(const float* p, const Target* t, double* part, int lane) {
  double pp = 0, tt = 0, pt = 0;
  for (int k = lane; k < SIZE; k += 32) {
    pp += (double)p[k] * p[k];
    tt += (double)t[k] * t[k];
    pt += (double)p[k] * t[k];
  }
  const double p_norm = sqrt(warp_sum(pp)), t_norm = sqrt(warp_sum(tt)), least = 1e-7;
  part[0] = warp_sum(pt) / ((p_norm < least ? least : p_norm) * (t_norm < least ? least : t_norm));
  part[1] = 1;
}
)cuda";
  static std::array<CudaDefine, 0> defines(const MeanCosineSimilarityOp&) { return {}; }
};

static_assert(HasKernel<AccuracyOp<std::int32_t>, Cuda> && HasKernel<AccuracyOp<float>, Cuda> &&
              HasKernel<TopKCategoricalAccuracyOp<std::int32_t>, Cuda> &&
              HasKernel<BinaryAccuracyOp<float>, Cuda> && HasKernel<BinaryCountsOp<float>, Cuda> &&
              HasKernel<RootMeanSquaredErrorOp, Cuda> && HasKernel<MeanCosineSimilarityOp, Cuda>);

}  // namespace lockstep
