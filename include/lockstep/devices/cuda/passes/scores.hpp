/// \file
/// The loss, its gradient and the metrics of a batch in one launch, if all of them work row by row.
/// Invariants: the texts are those of loss.hpp and metric.hpp, each in its own namespace; a warp
/// computes a row, which is an example or one of its positions; rows are added in double, in an
/// order that depends only on the shape.
///
///     Source:  namespace scored { loss }  namespace metric0 { ... }  namespace metric1 { ... }
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

#include "lockstep/devices/cuda/ops/loss.hpp"
#include "lockstep/devices/cuda/ops/metric.hpp"
#include "lockstep/devices/cuda/support/crossentropy.hpp"

namespace lockstep {

namespace detail::cuda {

/// SUMS numbers per row: the loss, then STATEi for metric i.
inline constexpr char scores_text[] = R"cuda(
struct Metric {
  const float* weight;
  double* state;
};
struct Metrics {
  Metric at[3];
};

// Adds metric i of row n to the sums that begin at `at`.
#define ADD_METRIC(i, state_size)                                              \
  {                                                                            \
    double part[state_size];                                                   \
    metric##i::row(p + n * SIZE, t + n * TARGETS, part, lane);                 \
    const double factor = metrics.at[i].weight ? metrics.at[i].weight[n / WEIGHED] : 1.0; \
    _Pragma("unroll") for (int k = 0; k < state_size; ++k) {                   \
      if (lane == 0) x[at + k] += factor * part[k];                            \
    }                                                                          \
    at += state_size;                                                          \
  }
#define STORE_METRIC(i, state_size) \
  for (int k = 0; k < state_size; ++k) metrics.at[i].state[k] += x[at++];

// One warp per row; the last block adds the totals to the loss and the metrics' states.
KERNEL(scores)(const float* p, const Target* t, float* g, const float* weight, double scale,
               double* sum, Metrics metrics, Sums* workspace, i64 count) {
  double x[SUMS] = {};
  const int lane = threadIdx.x % 32;
  for (i64 n = INDEX / 32; n < count; n += STRIDE / 32) {
    if (is_ignored(t + n * TARGETS)) {
      if (g) clear_row(g + n * SIZE, lane);
      continue;
    }
    const double w = weight ? weight[n / WEIGHED] : 1.0;
    const float loss = scored::row(p + n * SIZE, t + n * TARGETS, g ? g + n * SIZE : 0,
                                   (float)(w * scale), lane);
    x[0] += lane == 0 ? w * loss : 0;
    int at = 1;
    ADD_METRIC(0, STATE0)
#if METRICS > 1
    ADD_METRIC(1, STATE1)
#endif
#if METRICS > 2
    ADD_METRIC(2, STATE2)
#endif
  }
  if (!grid_sum(x, workspace) || threadIdx.x != 0) return;
  *sum += x[0] / ROWS;
  int at = 1;
  STORE_METRIC(0, STATE0)
#if METRICS > 1
  STORE_METRIC(1, STATE1)
#endif
#if METRICS > 2
  STORE_METRIC(2, STATE2)
#endif
}
)cuda";

/// Kernel arguments, laid out as in the text.
struct ScoredMetric {
  const float* weight = nullptr;
  double* state = nullptr;
};
struct ScoredMetrics {
  static constexpr std::size_t most = 3;
  std::array<ScoredMetric, most> at{};
};

/// Concatenates the texts, each in its namespace.
template <class LossOp, class First>
constexpr auto scored_functions() {
  return JoinedText("namespace scored {\n", CudaText<LossOp>::functions, "}\nnamespace metric0 {\n",
                    CudaText<First>::functions, "}\n");
}
template <class LossOp, class First, class Second>
constexpr auto scored_functions() {
  return JoinedText("namespace scored {\n", CudaText<LossOp>::functions, "}\nnamespace metric0 {\n",
                    CudaText<First>::functions, "}\nnamespace metric1 {\n",
                    CudaText<Second>::functions, "}\n");
}
template <class LossOp, class First, class Second, class Third>
constexpr auto scored_functions() {
  return JoinedText("namespace scored {\n", CudaText<LossOp>::functions, "}\nnamespace metric0 {\n",
                    CudaText<First>::functions, "}\nnamespace metric1 {\n",
                    CudaText<Second>::functions, "}\nnamespace metric2 {\n",
                    CudaText<Third>::functions, "}\n");
}
template <class LossOp, class... MetricOps>
inline constexpr auto scored_text = scored_functions<LossOp, MetricOps...>();

/// Losses and metrics whose text has a `row` and is an array, so that it can be concatenated.
template <class Op>
concept JoinableText =
    HasCudaText<Op> &&
    std::is_array_v<std::remove_reference_t<decltype((CudaText<Op>::functions))>>;
template <class Op>
concept RowLoss = RowwiseLoss<Op> && JoinableText<Op> && !is_elementwise_loss<Op>;
template <class Op>
concept RowMetric = RowwiseMetric<Op> && JoinableText<Op> && requires { CudaText<Op>::state; };
/// Whether the loss and the metrics fit into one kernel.
template <class LossOp, class... MetricOps>
constexpr bool score_together() {
  if constexpr (RowLoss<LossOp> && (RowMetric<MetricOps> && ...))
    return sizeof...(MetricOps) <= ScoredMetrics::most &&
           (1 + ... + CudaText<MetricOps>::state) <= static_cast<int>(SumWorkspace::max_sums);
  else
    return false;
}

}  // namespace detail::cuda

/// Falls back to one launch for each of them if their defines disagree.
template <class Precision>
struct Kernel<Scores, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;

  template <class Target, class LossOp, class... MetricOps>
    requires(detail::cuda::score_together<LossOp, MetricOps...>())  //
  static void run(const LossOp& loss, const LossIo<D, Target>& io,
                  const MetricCall<MetricOps, D, Target>&... metrics) {
    using detail::cuda::Define;
    if (io.count == 0) return;
    using detail::cuda::RowsOf;
    const RowsOf<LossOp> row(loss, true);
    const auto of_loss = detail::cuda::row_defines(row.op, CudaText<LossOp>::defines(row.op));
    std::vector<Define> defines(of_loss.begin(), of_loss.end());
    // The metrics' weights have the loss' layout, or they run separately.
    bool agree = ((detail::rows_of_example(metrics.op) == row.rows &&
                   (metrics.io.weight == nullptr || metrics.io.weights == io.weights)) &&
                  ...);
    // A name can be defined only once; kernels whose defines disagree run separately.
    const auto add = [&](const Define& define) {
      const auto known = std::find_if(defines.begin(), defines.end(),
                                      [&](const Define& d) { return d.name() == define.name(); });
      if (known == defines.end()) return defines.push_back(define);
      agree = agree && *known == define;
    };
    const auto add_all = [&](const auto& all) {
      for (const Define& d : all) add(d);
    };
    const auto add_metric = [&]<class Op>(const Op& op) {
      const RowsOf<Op> of_metric(op, true);
      add_all(detail::cuda::row_defines(of_metric.op, CudaText<Op>::defines(of_metric.op)));
    };
    (add_metric(metrics.op), ...);
    if (!agree) {
      Kernel<LossOp, D>::run(loss, io);
      (Kernel<MetricOps, D>::run(metrics.op, metrics.io), ...);
      return;
    }
    static constexpr std::array<const char*, detail::cuda::ScoredMetrics::most> names{
        "STATE0", "STATE1", "STATE2"};
    detail::cuda::ScoredMetrics places;
    std::size_t i = 0;
    int sums = 1;
    const auto place = [&](const auto& io_of_metric, int state) {
      places.at[i] = {io_of_metric.weight, io_of_metric.state};
      defines.emplace_back(names[i++], state);
      sums += state;
    };
    (place(metrics.io, CudaText<MetricOps>::state), ...);
    defines.emplace_back("METRICS", static_cast<int>(i));
    defines.emplace_back("SUMS", sums);
    defines.emplace_back("ROWS", row.rows);
    defines.emplace_back("WEIGHED", row.rows / io.weights);
    const std::size_t rows = io.count * row.rows;
    using detail::cuda::SumWorkspace;
    static constexpr detail::cuda::Source source{"scores", detail::cuda::scores_text,
                                                 detail::cuda::scored_text<LossOp, MetricOps...>};
    io.device.launch(io.device.kernel(source, "scores", defines), SumWorkspace::grid(rows, 8),
                     io.prediction, io.target, io.gradient, io.weight,
                     io.scale / static_cast<double>(row.rows), io.sum, places,
                     io.device.template handle<SumWorkspace>().get(),
                     static_cast<std::int64_t>(rows));
  }
};

static_assert(
    ScoresTogether<Cuda, std::int32_t, SparseCategoricalCrossentropyOp, AccuracyOp<std::int32_t>>);

}  // namespace lockstep
