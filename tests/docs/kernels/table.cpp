/// \file
/// Writes docs/kernels.md, from what the compiler knows: which device has a kernel for which op.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/cpu.hpp"
#include "lockstep/cuda.hpp"
#include "lockstep/devices/compiled_kernels.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

// The ops of the lists by which kernels are compiled once.
#undef LOCKSTEP_PASSES
#undef LOCKSTEP_UPDATE
#define LOCKSTEP_PASSES(how, D, ...) __VA_ARGS__,
#define LOCKSTEP_UPDATE(how, D, ...) __VA_ARGS__,
namespace lockstep {
using LayerOps = List<LOCKSTEP_LAYER_KERNELS(, ) void>;
using OptimizerOps = List<LOCKSTEP_OPTIMIZER_KERNELS(, ) void>;
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

template <class Ops, class... Ds>
void row(std::string& page, std::string_view name, ls::List<Ds...>) {
  page += "| ";
  page += name;
  ((page += has_all<Ds>(Ops{}) ? " | yes" : " | -"), ...);
  page += " |\n";
}

template <class Op>
inline constexpr bool has_row = !std::is_void_v<Op>;
template <class Op>
inline constexpr bool has_row<ls::AlongSteps<Op>> = false;

/// A row for each op, under its name without "Op".
template <class... Ops>
void rows(std::string& page, ls::List<Ops...>) {
  const auto add = [&]<class Op>() {
    if constexpr (has_row<Op>) {
      std::string_view name = ls::detail::class_name<Op>();
      if (name.ends_with("Op")) name.remove_suffix(2);
      row<ls::List<Op>>(page, name, Devices{});
    }
  };
  (add.template operator()<Ops>(), ...);
}

void table(std::string& page, std::string_view title, std::string_view text) {
  page += "\n## ";
  page += title;
  page += "\n\n";
  page += text;
  page += text.empty() ? "| op |" : "\n\n| op |";
  for (const std::string_view name : device_names) page += " " + std::string(name) + " |";
  page += "\n|---|";
  for (std::size_t i = 0; i < Devices::size; ++i) page += "---|";
  page += "\n";
}

template <class L>
using LossOp = decltype(std::declval<const L&>().op(ls::Shape{}));
template <class M, class Target>
using MetricOp = decltype(std::declval<const M&>().template op<Target>(ls::Shape{}));

template <class... Losses>
void loss_rows(std::string& page, ls::List<Losses...>) {
  (row<ls::List<LossOp<Losses>>>(page, ls::detail::class_name<Losses>(), Devices{}), ...);
}
template <class... Losses>
void mean_of_row(std::string& page, ls::List<Losses...>) {
  row<ls::List<ls::MeanOfOp<LossOp<Losses>>...>>(page, "MeanOf, of each loss", Devices{});
}

/// A metric with both kinds of targets, or with numbers only.
template <class... Metrics>
void metric_rows(std::string& page, ls::List<Metrics...>) {
  const auto add = [&]<class M>() {
    if constexpr (requires { M::template accepts<std::int32_t>(ls::Shape{}); }) {
      if constexpr (std::is_same_v<MetricOp<M, float>, MetricOp<M, std::int32_t>>)
        row<ls::List<MetricOp<M, float>>>(page, ls::detail::class_name<M>(), Devices{});
      else
        row<ls::List<MetricOp<M, float>, MetricOp<M, std::int32_t>>>(
            page, ls::detail::class_name<M>(), Devices{});
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
using Passes = ls::List<ls::GradientPass, ls::MovingAverage, ls::Penalty, ls::StateMean>;

std::string page() {
  std::string p =
      "# Kernels\n\n"
      "Which device has a kernel for which op. The program `kernel_table` of the tests asks the "
      "compiler and writes this page; a\ntest compares the two.\n";
  table(
      p, "Layers",
      "Flatten and Reshape are views: the plan drops them. A layer over one dimension is that over "
      "images, of one row.");
  rows(p, ls::LayerOps{});
  table(p, "Fused",
        "Several layers in one pass, where a device has it. Elsewhere the layers run one by one.");
  rows(p, Fused{});
  table(p, "Losses", "");
  loss_rows(p, Losses{});
  table(p, "Metrics", "With labels and with numbers as targets, where a metric takes both.");
  metric_rows(p, Metrics{});
  mean_of_row(p, Losses{});
  table(p, "Optimizers", "AdamW is Adam with decay.");
  rows(p, ls::OptimizerOps{});
  table(p, "Around the update",
        "Clipping, penalties' gradients and accumulation; averages of the weights; penalties' "
        "values; the mean\nof what replicas made of moving statistics.");
  rows(p, Passes{});
  table(p, "Data on the device",
        "Batches of rows that lie there, and a pipeline's operations on them. A device over the "
        "host's memory needs none:\nthe pipeline itself makes its batches.");
  rows(p, Data{});
  return p;
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
