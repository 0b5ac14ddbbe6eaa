/// \file
/// Losses on a GPU. Invariants: a warp computes a row, which is an example or one of its positions,
/// or a thread one element of a loss that is a mean over elements; rows are added in double, in an
/// order that depends only on the shape.
///
/// CudaText<Op> of a loss that is a sum over rows defines `float row(const float* p, const Target*
/// t, float* g, float scale, int lane)`. All lanes of a warp, 0 to 31, call it; it returns the loss
/// of one row in all lanes and writes scale * d loss / d p to g unless g is null. `Target` is
/// float, or int for labels; SIZE is the number of elements of a row of predictions. For
/// ElementwiseLossOp<Rule>, CudaText<Rule> defines `Term term(float p, float t)` with `struct Term
/// { float value, slope; }`.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/loss.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/scalar_text.hpp"
#include "lockstep/devices/cuda/support/sums.hpp"
#include "lockstep/losses/elementwise_loss.hpp"
#include "lockstep/metrics/mean_of.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr char loss_text[] = R"cuda(
// Weights of classes in training: `count` classes in ascending order, then their weights.
struct Classes {
  const double* table;
  int count;
};
#ifdef PLACED
// The weight of the class of `targets` targets: of a number, or of the place of the first maximum.
__device__ inline double class_weight(Classes classes, const Given* t, int targets) {
  if (classes.count == 0) return 1;
  double number = rint((double)t[0]);
  if (targets > 1) {
    int most = 0;
    for (int k = 1; k < targets; ++k)
      if (t[k] > t[most]) most = k;
    number = most;
  }
  for (int c = 0; c < classes.count; ++c)
    if (classes.table[c] == number) return classes.table[classes.count + c];
  return 1;
}
#else
__device__ inline double class_weight(Classes, const Given*, int) { return 1; }
#endif
#ifndef MASKS_ROWS
#define MASKS_ROWS 0
#endif

// x[0] += the weighted losses, x[1] += the sample weights. One of these belongs to WEIGHED rows, or
// elements. With MASKS_ROWS, rows of weight 0 may have any prediction.
__device__ inline void add_losses(double (&x)[2], const float* p, const Given* t, float* g,
                                  const float* w, double scale, Classes classes, i64 count) {
#ifdef ELEMENTWISE
  const double share = scale / SIZE;
  for (i64 i = INDEX; i < count * SIZE; i += STRIDE) {
    double weight = w ? w[W_AT(i / WEIGHED)] : 1.0;
    if (MASKS_ROWS && weight == 0) {
      if (g) g[P_AT(i)] = 0;
      continue;
    }
    weight *= class_weight(classes, t + T_AT(i / WEIGHED * WEIGHED), WEIGHED);
    const Term one = term(p[P_AT(i)], t[T_AT(i)]);
    if (g) g[P_AT(i)] = (float)(weight * share) * one.slope;
    x[0] += weight * one.value;
    x[1] += i % WEIGHED == 0 ? weight : 0;
  }
#else
  const int lane = threadIdx.x % 32;
  for (i64 n = INDEX / 32; n < count; n += STRIDE / 32) {
    const TargetsAt<TARGETS> target(t, n * TARGETS);
    float* const slopes = g ? g + P_AT(n * SIZE) : 0;
    double weight = w ? w[W_AT(n / WEIGHED)] : 1.0;
    if (is_ignored(target) || (MASKS_ROWS && weight == 0)) {
      if (g) clear_row(slopes, lane);
      continue;
    }
    weight *= class_weight(classes, t + T_AT(n * TARGETS), TARGETS);
    const float one = row(p + P_AT(n * SIZE), target, slopes, (float)(weight * scale), lane);
    x[0] += lane == 0 ? weight * one : 0;
    x[1] += lane == 0 ? weight : 0;
  }
#endif
}

// sum += the weighted loss / of_sum; weights += the sample weights / of_weights, unless null.
KERNEL(loss)(const float* p, const Given* t, float* g, const float* w, double scale, double* sum,
             double* weights, double of_sum, double of_weights, Sums* workspace, i64 count) {
  double x[2] = {0, 0};
  const Classes none = {0, 0};
  add_losses(x, p, t, g, w, scale, none, count);
  if (!grid_sum(x, workspace) || threadIdx.x != 0) return;
  *sum += x[0] / of_sum;
  if (weights) *weights += x[1] / of_weights;
}
)cuda";

/// Where the parts of an example lie, of a loss or metric of one of several outputs: elements of a
/// part, and the distance of two examples.
struct RowPlace {
  std::size_t predictions = 0, prediction_row = 0, targets = 0, target_row = 0, weights = 1,
              weight_row = 1;

  /// Appends the defines of P_AT, T_AT and W_AT.
  template <std::size_t N>
  std::array<Define, N + 7> placed(const std::array<Define, N>& defines) const {
    std::array<Define, N + 7> all{};
    std::copy(defines.begin(), defines.end(), all.begin());
    const std::array<Define, 7> own{Define("PLACED", 1),
                                    Define("P_EACH", predictions),
                                    Define("P_PITCH", prediction_row),
                                    Define("T_EACH", targets),
                                    Define("T_PITCH", target_row),
                                    Define("W_EACH", weights),
                                    Define("W_PITCH", weight_row)};
    std::copy(own.begin(), own.end(), all.begin() + N);
    return all;
  }
};
/// The place of rows that follow each other.
struct RowsInOrder {
  template <std::size_t N>
  const std::array<Define, N>& placed(const std::array<Define, N>& defines) const {
    return defines;
  }
};

/// Appends the type of the targets and the sizes to a text's defines.
template <class Op, std::size_t N>
std::array<Define, N + 5> row_defines(const Op& op, const std::array<Define, N>& own) {
  std::array<Define, N + 5> all{};
  std::copy(own.begin(), own.end(), all.begin());
  all[N] = Define("SIZE", op.size());
  all[N + 1] = Define("TARGETS", op.target_size());
  all[N + 2] = Define("LABELS", std::same_as<typename Op::target_type, float> ? 0 : 1);
  const auto ignored = ignored_class(op);
  all[N + 3] = Define("IGNORES", ignored ? 1 : 0);
  all[N + 4] = Define("IGNORED", ignored.value_or(0));
  return all;
}

/// Whether the op's text has a `term`.
template <class Op>
inline constexpr bool is_elementwise_loss = requires { requires CudaText<Op>::elementwise; };

/// An op as its kernel computes it: `op` is that of a row, `rows` of which make an example.
template <class Op>
struct RowsOf {
  Op op;
  std::size_t rows = 1;

  /// `by_rows`: whether each row is computed on its own.
  RowsOf(const Op& whole, [[maybe_unused]] bool by_rows) : op(whole) {
    if constexpr (HasRows<Op>)
      if (by_rows) {
        rows = whole.rows();
        op = whole.row();
      }
  }
};

/// Adds the losses of a batch to `sum`, and the sample weights to `weights` unless that is null.
template <class Op, class D, class Target, class Place = RowsInOrder>
void add_losses(const Op& whole, const LossIo<D, Target>& io, double* weights,
                const Place& place = {}) {
  if (io.count == 0) return;
  const RowsOf<Op> row(whole, is_by_rows<Op>);
  const Op& op = row.op;
  const std::size_t parts = is_elementwise_loss<Op> ? op.size() : row.rows;
  const std::size_t weighed = parts / io.weights;
  // As on the host: a metric with a weight per row adds rows, otherwise means of examples.
  const std::size_t of_sum =
      weights != nullptr && io.weights > 1 ? (is_elementwise_loss<Op> ? weighed : 1) : parts;
  const std::size_t of_weights = io.weights > 1 || is_elementwise_loss<Op> ? 1 : row.rows;
  constexpr Source source{"loss", loss_text, CudaText<Op>::functions};
  auto& context = io.device;
  const std::size_t rows = io.count * row.rows;
  const Grid grid = is_elementwise_loss<Op> ? SumWorkspace::grid(io.count * op.size())
                                            : SumWorkspace::grid(rows, 8);
  const auto defines =
      place.placed(with_define(row_defines(op, CudaText<Op>::defines(op)), {"WEIGHED", weighed}));
  context.launch(context.kernel(source, "loss", defines), grid, io.prediction, io.target,
                 io.gradient, io.weight, io.scale / static_cast<double>(row.rows), io.sum, weights,
                 static_cast<double>(of_sum), static_cast<double>(of_weights),
                 context.template handle<SumWorkspace>().get(), static_cast<std::int64_t>(rows));
}

}  // namespace detail::cuda

template <RowwiseLoss Op, class Precision>
  requires HasCudaText<Op>
struct Kernel<Op, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  static constexpr bool weighs = true;
  /// One launch: the loss of a batch and, unless null, its gradient.
  static void run(const Op& op, const LossIo<BasicCuda<Precision>, typename Op::target_type>& io) {
    detail::cuda::add_losses(op, io, nullptr);
  }
};

template <class LossOp, class Precision>
  requires HasCudaText<LossOp>
struct Kernel<MeanOfOp<LossOp>, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  static constexpr bool weighs = true;
  /// A loss as a metric: (sum of losses, sum of weights).
  template <class Target, class Place = detail::cuda::RowsInOrder>
  static void run(const MeanOfOp<LossOp>& op, const MetricIo<D, Target>& io,
                  const Place& place = {}) {
    detail::cuda::add_losses(op.loss,
                             LossIo<D, Target>{io.device, io.count, io.prediction, io.target,
                                               nullptr, 1, io.state, io.weight, io.weights},
                             io.state + 1, place);
  }
};

/// The text of an element-wise loss is that of its rule.
template <class Rule>
  requires HasCudaText<Rule>
struct CudaText<ElementwiseLossOp<Rule>> {
  static constexpr bool elementwise = true;
  static constexpr auto& functions = CudaText<Rule>::functions;
  static auto defines(const ElementwiseLossOp<Rule>& op) {
    return detail::cuda::with_define(CudaText<Rule>::defines(op.rule), {"ELEMENTWISE", 1});
  }
};

}  // namespace lockstep
