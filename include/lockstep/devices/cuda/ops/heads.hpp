/// \file
/// Losses and metrics of several outputs on a GPU: the kernels of each loss and metric, which find
/// their part of the rows of an example by its place (RowPlace). Invariant: one launch for each head
/// and metric, in the order of the outputs.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/concepts/heads.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/memory.hpp"
#include "lockstep/devices/cuda/ops/loss.hpp"
#include "lockstep/devices/cuda/ops/metric.hpp"
#include "lockstep/devices/cuda/support/histogram.hpp"

namespace lockstep {

// Of <lockstep/heads.hpp>, which programs without heads do not include.
template <class Losses>
struct LossesOp;
template <class O, HeadPlace place>
struct OnOp;

namespace detail::cuda {

inline constexpr JoinedText head_loss_text(loss_text, R"cuda(
// sum += factor * mean, where the mean is the weighted loss * share; means, unless null, += the mean
// and the examples.
KERNEL(head_loss)(const float* p, const Given* t, float* g, const float* w, double scale,
                  Classes classes, double* sum, double* means, double factor, double share,
                  double examples, Sums* workspace, i64 count) {
  double x[2] = {0, 0};
  add_losses(x, p, t, g, w, scale, classes, count);
  if (!grid_sum(x, workspace) || threadIdx.x != 0) return;
  const double mean = x[0] * share;
  *sum += factor * mean;
  if (!means) return;
  means[0] += mean;
  means[1] += examples;
}
)cuda");

/// Class weights in the GPU's memory: classes in ascending order, then their weights.
class ClassTables {
 public:
  using Weights = std::vector<std::pair<int, double>>;

  ClassTables() = default;
  ~ClassTables() {
    for (const auto& [weights, memory] : all_) driver().cuMemFree(memory);
  }
  ClassTables(const ClassTables&) = delete;
  ClassTables& operator=(const ClassTables&) = delete;

  /// The table of `weights`, copied on first use; 0 if they are empty. \throws OutOfMemory.
  CUdeviceptr get(CudaContext& context, const Weights& weights) {
    if (weights.empty()) return 0;
    for (const auto& [known, memory] : all_)
      if (known == weights) return memory;
    std::vector<double> table;
    for (const auto& [number, weight] : weights) table.push_back(number);
    for (const auto& [number, weight] : weights) table.push_back(weight);
    const std::size_t bytes = table.size() * sizeof(double);
    all_.emplace_back(weights, allocate_memory(bytes));
    const CUdeviceptr memory = all_.back().second;
    context.upload(reinterpret_cast<std::byte*>(memory),
                   reinterpret_cast<const std::byte*>(table.data()), bytes);
    return memory;
  }

 private:
  std::vector<std::pair<Weights, CUdeviceptr>> all_;
};

/// The text's `Classes`.
struct ClassesArgument {
  CUdeviceptr table;
  int count;
};

constexpr RowPlace row_place(const HeadPlace& place) {
  return {place.shape.size(), place.row,     place.targets,
          place.target_row,   place.weights, place.weight_row};
}

template <class Losses, std::size_t o>
using HeadOpOf = std::remove_cvref_t<
    decltype(std::declval<const typename Losses::template HeadAt<o>::loss_type&>().op(Shape{}))>;

/// Whether all losses have a text.
template <class Losses>
constexpr bool have_texts() {
  return []<std::size_t... o>(std::index_sequence<o...>) {
    return (HasCudaText<HeadOpOf<Losses, o>> && ...);
  }(std::make_index_sequence<Losses::count>());
}

}  // namespace detail::cuda

template <class Losses, class Precision>
  requires(detail::cuda::have_texts<Losses>())
struct Kernel<LossesOp<Losses>, BasicCuda<Precision>> : KernelTraits {
  using D = BasicCuda<Precision>;
  static constexpr bool weighs = true;
  static void run(const LossesOp<Losses>& op, const LossIo<D, float>& io) {
    if (io.count == 0) return;
    op.losses->each([&]<std::size_t o>(Constant<o>, const auto& head) { add<o>(op, head, io); });
  }

 private:
  template <std::size_t o, class Head>
  static void add(const LossesOp<Losses>& op, const Head& head, const LossIo<D, float>& io) {
    using namespace detail::cuda;
    using Op = HeadOpOf<Losses, o>;
    constexpr HeadPlace place = Losses::places[o];
    constexpr bool by_elements = is_elementwise_loss<Op>;
    const detail::cuda::RowsOf<Op> row(head.loss.op(place.shape),
                                       !by_elements && place.weights > 1);
    const std::size_t parts = by_elements ? row.op.size() : row.rows, rows = io.count * row.rows;
    const double share = op.scale[o] / static_cast<double>(row.rows);
    constexpr Source source{"head_loss", head_loss_text, CudaText<Op>::functions};
    const auto defines = row_place(place).placed(
        with_define(with_define(row_defines(row.op, CudaText<Op>::defines(row.op)),
                                {"WEIGHED", parts / place.weights}),
                    {"MASKS_ROWS", head.masks}));
    const ClassesArgument classes =
        op.trains ? ClassesArgument{io.device.template handle<ClassTables>().get(io.device,
                                                                                 head.class_weight),
                                    static_cast<int>(head.class_weight.size())}
                  : ClassesArgument{0, 0};
    io.device.launch(
        io.device.kernel(source, "head_loss", defines),
        by_elements ? SumWorkspace::grid(io.count * parts) : SumWorkspace::grid(rows, 8),
        io.prediction + place.prediction, io.target + place.target,
        io.gradient == nullptr ? nullptr : io.gradient + place.prediction,
        io.weight == nullptr ? nullptr : io.weight + place.weight, io.scale * head.weight * share,
        classes, io.sum, op.adds_means ? io.sum + 1 + 2 * o : nullptr, head.weight,
        op.scale[o] / static_cast<double>(parts), static_cast<double>(io.count),
        io.device.template handle<SumWorkspace>().get(), static_cast<std::int64_t>(rows));
  }
};

/// Adds nothing: the kernel of all losses has added the means of the heads.
template <FixedString output, class Precision>
struct Kernel<HeadLossOp<output>, BasicCuda<Precision>> : KernelTraits {
  static void run(const HeadLossOp<output>&, const MetricIo<BasicCuda<Precision>, float>&) {}
};

template <class O, HeadPlace place, class Precision>
  requires requires(const O& op, const MetricIo<BasicCuda<Precision>, float>& io,
                    const detail::cuda::RowPlace& rows) {
    Kernel<O, BasicCuda<Precision>>::run(op, io, rows);
  }
struct Kernel<OnOp<O, place>, BasicCuda<Precision>> : KernelTraits {
  using D = BasicCuda<Precision>;
  static constexpr bool weighs = true;
  static void run(const OnOp<O, place>& op, const MetricIo<D, float>& io) {
    Kernel<O, D>::run(op.op,
                      MetricIo<D, float>{io.device, io.count, io.prediction + place.prediction,
                                         io.target + place.target, io.state,
                                         io.weight == nullptr ? nullptr : io.weight + place.weight,
                                         io.weight == nullptr ? 1 : place.weights},
                      detail::cuda::row_place(place));
  }
};

}  // namespace lockstep
