/// \file
/// The table of a model, in the words of Keras' `summary`, with memory and FLOPs.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

// fmt 9 takes nvcc for a compiler without constexpr, and then calls what is none in one that is.
#if defined(__NVCC__) && !defined(FMT_USE_CONSTEXPR)
#define FMT_USE_CONSTEXPR 1
#endif
#include <fmt/core.h>

#include "lockstep/model/plan.hpp"
#include "lockstep/training/format_numbers.hpp"
#include "lockstep/training/parameters.hpp"

namespace lockstep::detail {

inline std::string readable_flops(double flops) {
  static constexpr std::array<std::string_view, 4> units{"FLOPs", "kFLOPs", "MFLOPs", "GFLOPs"};
  std::size_t unit = 0;
  for (; flops >= 1000 && unit + 1 < units.size(); ++unit) flops /= 1000;
  return fmt::format("{:.{}f} {}", flops, unit == 0 ? 0 : 2, units[unit]);
}

/// Steps of the plan that do the work of several layers: "conv2d+re_lu".
template <class Net, class D>
std::vector<std::string> fused_names() {
  constexpr auto& plan = PlanOf<Net, D>::plan;
  std::vector<std::string> result;
  for (int i = 0; i < plan.steps; ++i) {
    const PlacedStep& s = plan.step[static_cast<std::size_t>(i)];
    if (s.node_count < 2) continue;
    std::string name;
    for (int k = 0; k < s.node_count; ++k) {
      const Node& n =
          Net::graph.node[static_cast<std::size_t>(s.nodes[static_cast<std::size_t>(k)])];
      if (k > 0) name += '+';
      name += n.is_activation ? std::string(n.class_name) : layer_name(n.name, n.ordinal);
    }
    result.push_back(std::move(name));
  }
  return result;
}

/// Of the forward passes that Recompute runs again.
template <class Net, class D>
double recomputed_flops() {
  constexpr auto& plan = PlanOf<Net, D>::plan;
  double flops = 0;
  for (int i = 0; i < plan.steps; ++i) {
    const PlacedStep& s = plan.step[static_cast<std::size_t>(i)];
    for (int k = 0; s.runs_again && k < s.node_count; ++k)
      flops +=
          Net::graph.node[static_cast<std::size_t>(s.nodes[static_cast<std::size_t>(k)])].flops;
  }
  return flops;
}

/// A table of text with ruled columns.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header) { add(std::move(header)); }
  void add(std::vector<std::string> row) {
    width_.resize(row.size());
    for (std::size_t c = 0; c < row.size(); ++c) width_[c] = std::max(width_[c], row[c].size());
    rows_.push_back(std::move(row));
  }
  /// The last column is set flush right.
  std::string str() const {
    std::string text = rule("┏", "━", "┳", "┓");
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      text += r == 0 ? "┃" : "│";
      for (std::size_t c = 0; c < width_.size(); ++c)
        text += c + 1 == width_.size()
                    ? fmt::format(" {:>{}} {}", rows_[r][c], width_[c], r == 0 ? "┃" : "│")
                    : fmt::format(" {:<{}} {}", rows_[r][c], width_[c], r == 0 ? "┃" : "│");
      text += "\n";
      if (r == 0) text += rule("┡", "━", "╇", "┩");
    }
    return text + rule("└", "─", "┴", "┘");
  }

 private:
  std::string rule(std::string_view left, std::string_view line, std::string_view cross,
                   std::string_view right) const {
    std::string text(left);
    for (std::size_t c = 0; c < width_.size(); ++c) {
      for (std::size_t i = 0; i < width_[c] + 2; ++i) text += line;
      text += c + 1 == width_.size() ? right : cross;
    }
    return text + "\n";
  }
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::size_t> width_;
};

template <class Net, class D>
std::string summary_of(std::size_t optimizer_slots) {
  constexpr auto& graph = Net::graph;
  constexpr auto& plan = PlanOf<Net, D>::plan;
  constexpr std::size_t element = sizeof(typename D::real);

  TextTable table({"Layer (type)", "Output Shape", "FLOPs", "Param #"});
  for (int i = 0; i < graph.nodes; ++i) {
    const Node& n = graph.node[static_cast<std::size_t>(i)];
    if (n.is_activation) continue;
    std::size_t parameters = 0;
    for (int k = 0; k < graph.parameters; ++k) {
      const NamedParameter& p = graph.parameter[static_cast<std::size_t>(k)];
      if (p.layer == n.name && p.ordinal == n.ordinal) parameters += p.shape.size();
    }
    table.add({layer_name(n.name, n.ordinal) + " (" + std::string(n.class_name) + ")",
               to_string(graph.value[static_cast<std::size_t>(n.out)], "None"),
               n.flops > 0 ? readable_flops(n.flops) : "0", format_count(parameters)});
  }
  const auto count = [&](const char* what, std::size_t n) {
    return fmt::format(" {}: {} ({})\n", what, format_count(n), format_bytes(n * element));
  };
  std::string text = table.str();
  text += count("Total params", graph.weights + graph.state);
  text += count("Trainable params", graph.weights);
  text += count("Non-trainable params", graph.state);
  text += count("Optimizer params", graph.weights * optimizer_slots);
  text += fmt::format(" Gradients: {}\n", format_bytes(graph.weights * element));
  text += fmt::format(
      " Activations: {} an example ({} without reuse) + {} a step, library scratch not counted\n",
      format_bytes(plan.arena), format_bytes(plan.arena_unshared), format_bytes(plan.once));
  text += fmt::format(" Forward pass: {} an example\n", readable_flops(graph.flops));
  if (plan.repeated > 0)
    text += fmt::format(" Recomputed in backward: {} of {} steps, {} an example\n", plan.repeated,
                        plan.steps, readable_flops(recomputed_flops<Net, D>()));
  const std::vector<std::string> fused = fused_names<Net, D>();
  for (std::size_t i = 0; i < fused.size(); ++i)
    text += (i == 0 ? fmt::format(" Fused on {}: ", D::name) : std::string(", ")) + fused[i];
  if (!fused.empty()) text += "\n";
  return text;
}

}  // namespace lockstep::detail
