/// \file
/// Writes docs/kernels.md, from what the compiler knows: which device has a kernel for which op.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/add_item.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/cuda.hpp"
#include "lockstep/devices/compiled_kernels.hpp"
#include "lockstep/function.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/text_generator.hpp"

// The ops of the lists by which kernels are compiled once.
#undef LOCKSTEP_PASSES
#undef LOCKSTEP_UPDATE
#define LOCKSTEP_PASSES(how, D, ...) __VA_ARGS__,
#define LOCKSTEP_UPDATE(how, D, ...) __VA_ARGS__,
namespace lockstep {
using LayerOps = List<LOCKSTEP_LAYER_KERNELS(, ) DotProductAttentionOp, TiedDenseOp, LSTMOp<>,
                      GRUOp<>, SimpleRNNOp<>, MaskOp, MaskingOp, MaskedAverageOp,
                      MaskedMergeOp<MultiplyOp>, TimeDistributedOp<DenseOp>, void>;
using OptimizerOps = List<LOCKSTEP_OPTIMIZER_KERNELS(, ) LOCKSTEP_HOST_OPTIMIZER_KERNELS(, ) void>;
}  // namespace lockstep

namespace {
namespace ls = lockstep;

using Devices = ls::List<ls::Reference<double>, ls::Cpu, ls::CpuBFloat16, ls::Cuda,
                         ls::CudaBFloat16, ls::CudaFloat16, ls::CudaTf32>;
constexpr std::string_view device_names[] = {"Reference",    "Cpu",         "CpuBFloat16", "Cuda",
                                             "CudaBFloat16", "CudaFloat16", "CudaTf32"};
static_assert(std::size(device_names) == Devices::size);

/// Whether D has a kernel for each of the ops.
template <class D, class... Ops>
constexpr bool has_all(ls::List<Ops...>) {
  return (ls::HasKernel<Ops, D> && ...);
}

/// The ops of one table, joined where the same devices have them.
class Table {
 public:
  template <class Ops>
  void add(std::string_view op) {
    add<Ops>(op, Devices{});
  }

  std::string text() const {
    std::string made = "| ops | devices with a kernel |\n|---|---|\n";
    for (const auto& [devices, ops] : rows_) made += "| " + ops + " | " + devices + " |\n";
    return made;
  }

 private:
  template <class Ops, class... Ds>
  void add(std::string_view op, ls::List<Ds...>) {
    constexpr bool has[] = {has_all<Ds>(Ops{})...};
    std::string devices;
    for (std::size_t i = 0; i < Devices::size; ++i)
      if (has[i]) ls::add_item(devices, ", ", device_names[i]);
    if ((has_all<Ds>(Ops{}) && ...)) devices = "all";
    if (devices.empty()) devices = "none";
    const auto same = [&](const auto& row) { return row.first == devices; };
    const auto found = std::find_if(rows_.begin(), rows_.end(), same);
    if (found == rows_.end())
      rows_.emplace_back(devices, op);
    else
      found->second += ", " + std::string(op);
  }

  std::vector<std::pair<std::string, std::string>> rows_;  // devices, ops
};

template <class Op>
inline constexpr bool has_row = !std::is_void_v<Op>;
template <class Op>
inline constexpr bool has_row<ls::AlongSteps<Op>> = false;

/// A row for each op, under its name without "Op".
template <class... Ops>
void rows(Table& table, ls::List<Ops...>) {
  const auto add = [&]<class Op>() {
    if constexpr (has_row<Op>) {
      std::string_view name = ls::detail::class_name<Op>();
      if (name.ends_with("Op")) name.remove_suffix(2);
      table.add<ls::List<Op>>(name);
    }
  };
  (add.template operator()<Ops>(), ...);
}

template <class L>
using LossOp = decltype(std::declval<const L&>().op(ls::Shape{}));
template <class M, class Target>
using MetricOp = decltype(std::declval<const M&>().template op<Target>(ls::Shape{}));

template <class... Losses>
void loss_rows(Table& table, ls::List<Losses...>) {
  (table.add<ls::List<LossOp<Losses>>>(ls::detail::class_name<Losses>()), ...);
}
template <class... Losses>
void mean_of_row(Table& table, ls::List<Losses...>) {
  table.add<ls::List<ls::MeanOfOp<LossOp<Losses>>...>>("MeanOf of each loss");
}

/// A metric with both kinds of targets, or with numbers only.
template <class... Metrics>
void metric_rows(Table& table, ls::List<Metrics...>) {
  const auto add = [&]<class M>() {
    if constexpr (requires { M::template accepts<std::int32_t>(ls::Shape{}); }) {
      if constexpr (std::is_same_v<MetricOp<M, float>, MetricOp<M, std::int32_t>>)
        table.add<ls::List<MetricOp<M, float>>>(ls::detail::class_name<M>());
      else
        table.add<ls::List<MetricOp<M, float>, MetricOp<M, std::int32_t>>>(
            ls::detail::class_name<M>());
    }
  };
  (add.template operator()<Metrics>(), ...);
}

using Fused = ls::List<ls::BatchNormalizationReLUOp, ls::BatchNormalizationAddReLUOp,
                       ls::ConvReLUOp, ls::ConvReLUPoolOp, ls::DenseReLUOp>;
using Losses = ls::List<ls::BinaryCrossentropy, ls::CategoricalCrossentropy, ls::CosineSimilarity,
                        ls::Hinge, ls::Huber, ls::KLDivergence, ls::LogCosh, ls::MeanAbsoluteError,
                        ls::MeanSquaredError, ls::Poisson, ls::SparseCategoricalCrossentropy>;
using Metrics = ls::List<ls::AUC<>, ls::Accuracy, ls::BinaryAccuracy, ls::ConfusionMatrix<10>,
                         ls::MeanCosineSimilarity, ls::Precision, ls::Recall,
                         ls::RootMeanSquaredError, ls::TopKCategoricalAccuracy>;
using Data = ls::List<ls::GatherRows, ls::pipeline::CentralWindow, ls::pipeline::Cutout,
                      ls::pipeline::FlipLeftRight, ls::pipeline::FlipUpDown,
                      ls::pipeline::RandomWindow, ls::pipeline::Scaling, ls::pipeline::Standardize>;
using Generation = ls::List<ls::CachedAttentionOp, ls::CachedDotProductOp, ls::PositionStepOp>;
using Passes = ls::List<ls::GradientPass, ls::MovingAverage, ls::Penalty, ls::StateMean>;

constexpr auto of_elements = [](auto x) { return x * sigmoid(x); };
constexpr auto of_rows = [](auto x) { return x - max(x); };
constexpr auto loss_of_elements = [](auto p, auto t) { return square(p - t); };
constexpr auto loss_of_rows = [](auto p, auto t) { return sum(p * t); };

std::string section(std::string_view title, std::string_view text, const Table& table) {
  std::string made = "\n## " + std::string(title) + "\n\n" + std::string(text);
  return made + (text.empty() ? "" : "\n\n") + table.text();
}

std::string page() {
  Table layers, fused, generation, losses, metrics, optimizers, passes, data;
  rows(layers, ls::LayerOps{});
  layers.add<ls::List<decltype(ls::Function<of_elements>::op({})),
                      decltype(ls::Function<of_rows>::op({}))>>("Function");
  rows(fused, Fused{});
  rows(generation, Generation{});
  loss_rows(losses, Losses{});
  losses.add<ls::List<LossOp<ls::Function<loss_of_elements>>, LossOp<ls::Function<loss_of_rows>>>>(
      "Function as FunctionLoss");
  metric_rows(metrics, Metrics{});
  mean_of_row(metrics, Losses{});
  rows(optimizers, ls::OptimizerOps{});
  rows(passes, Passes{});
  rows(data, Data{});
  std::string devices;
  for (const std::string_view name : device_names) ls::add_item(devices, ", ", name);
  return "# Kernels\n\nWhich device has a kernel for which op. The devices are " + devices +
         ".\nThe test program `kernel_table` asks the compiler and prints this page; a test compares "
         "the two.\n" +
         section(
             "Layers",
             "Flatten and Reshape are views, which the plan removes. Layers along steps use the "
             "kernels for images, the attention layers those of DotProductAttention and Dense.",
             layers) +
         section("Fused", "Several layers in one pass. Elsewhere they run one by one.", fused) +
         section("Generation",
                 "Steps of a text, with cached keys and values, in lockstep/text_generator.hpp.",
                 generation) +
         section("Losses", "", losses) +
         section("Metrics", "For labels and for numbers as targets, if a metric accepts both.",
                 metrics) +
         section("Optimizers", "AdamW is Adam with weight decay.", optimizers) +
         section("Around the update",
                 "Clipping, gradients of penalties, and accumulation; averages of the weights; "
                 "values of penalties; means of\nmoving statistics over replicas.",
                 passes) +
         section("Data on the device",
                 "Batches of rows that reside on the device, and operations of a pipeline on them. "
                 "On devices over host memory, the\npipeline itself makes the batches.",
                 data);
}

}  // namespace

int main(int count, char** arguments) {
  const std::string made = page();
  if (count < 2) {
    std::fwrite(made.data(), 1, made.size(), stdout);
    return 0;
  }
  std::ifstream file(arguments[1], std::ios::binary);
  const std::string there{std::istreambuf_iterator<char>(file), {}};
  if (there == made) return 0;
  std::fprintf(stderr, "%s does not match the headers; rewrite it: kernel_table > %s\n",
               arguments[1], arguments[1]);
  return 1;
}
