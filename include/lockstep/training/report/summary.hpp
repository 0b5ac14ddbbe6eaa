/// \file
/// The table of a model, in the words of Keras' `summary`, with memory and FLOPs.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/model/plan.hpp"
#include "lockstep/training/parameters.hpp"

namespace lockstep::detail {

inline std::string readable_flops(double flops) {
  static constexpr std::array<const char*, 4> units{"FLOPs", "kFLOPs", "MFLOPs", "GFLOPs"};
  std::size_t unit = 0;
  for (; flops >= 1000 && unit + 1 < units.size(); ++unit) flops /= 1000;
  return print("%.*f %s", unit == 0 ? 0 : 2, flops, units[unit]);
}

/// Steps of the plan that do the work of several layers: "conv2d+re_lu".
template <class Net, class D>
std::vector<std::string> fused_names() {
  constexpr auto& plan = PlanOf<Net, D>::plan;
  std::vector<std::string> result;
  for (StepId i{}; i < plan.end(); ++i) {
    const PlacedStep& s = plan.step[i];
    if (s.node_count > 1) result.push_back(layers_of(s, Net::graph.node.data()));
  }
  return result;
}

/// A table of text with ruled columns.
class TextTable {
 public:
  using Row = std::vector<std::string>;

  /// Numbers stand in the columns from `first` to `last`, which are set flush right.
  TextTable(Row header, std::size_t first, std::size_t last)
      : first_(first), last_(last), width_(header.size()) {
    add(std::move(header));
  }
  void add(Row row) {
    for (std::size_t c = 0; c < row.size(); ++c) width_[c] = std::max(width_[c], columns(row[c]));
    rows_.push_back(std::move(row));
  }
  std::string str() const {
    std::string text = rule("┏", "━", "┳", "┓");
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      text += r == 0 ? "┃" : "│";
      for (std::size_t c = 0; c < width_.size(); ++c) {
        const std::string& cell = rows_[r][c];
        const std::string padding(width_[c] - columns(cell), ' ');
        text += " ";
        text += c >= first_ && c <= last_ ? padding + cell : cell + padding;
        text += r == 0 ? " ┃" : " │";
      }
      text += "\n";
      if (r == 0) text += rule("┡", "━", "╇", "┩");
    }
    return text + rule("└", "─", "┴", "┘");
  }

 private:
  /// Characters of UTF-8.
  static std::size_t columns(std::string_view cell) {
    std::size_t count = 0;
    for (const char c : cell) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    return count;
  }
  std::string rule(std::string_view left, std::string_view line, std::string_view cross,
                   std::string_view right) const {
    std::string text(left);
    for (std::size_t c = 0; c < width_.size(); ++c) {
      for (std::size_t i = 0; i < width_[c] + 2; ++i) text += line;
      text += c + 1 == width_.size() ? right : cross;
    }
    return text + "\n";
  }
  std::size_t first_, last_;
  std::vector<std::size_t> width_;
  std::vector<Row> rows_;
};

/// Whether a layer takes something other than what the layer before it makes.
[[gnu::cold]] inline bool has_branches(std::span<const Node> nodes) {
  ValueId last = ValueId::batch;
  for (const Node& n : nodes) {
    if (exists(n.in1) || n.in0 != last) return true;
    last = n.out;
  }
  return false;
}

template <class Net, class D>
std::string summary_of(std::size_t optimizer_slots) {
  constexpr auto& graph = Net::graph;
  constexpr auto& plan = lockstep::plan<Net, D>;
  constexpr std::size_t element = sizeof(typename D::real);

  const std::span<const Node> nodes(graph.node.data(), static_cast<std::size_t>(graph.nodes));
  TextTable::Row header{"Layer (type)", "Output Shape", "FLOPs", "Param #"};
  const bool branches = has_branches(nodes);
  if (branches) header.push_back("Connected to");
  TextTable table(std::move(header), 3, 3);
  for (const Node& n : nodes) {
    if (n.is_activation) continue;
    std::size_t parameters = 0;
    for (int k = 0; k < graph.parameters; ++k) {
      const NamedParameter& p = graph.parameter[static_cast<std::size_t>(k)];
      if (p.layer == n.name && p.ordinal == n.ordinal) parameters += p.shape.size();
    }
    TextTable::Row row{layer_name(n.name, n.ordinal) + " (" + std::string(n.class_name) + ")",
                       to_string(graph.value[n.out], "None"),
                       n.flops > 0 ? readable_flops(n.flops) : "0", format_count(parameters)};
    if (branches)
      row.push_back(value_name(nodes, n.in0) +
                    (!exists(n.in1) ? "" : ", " + value_name(nodes, n.in1)));
    table.add(std::move(row));
  }
  const auto count = [&](const char* what, std::size_t n) {
    return lockstep::text(
        {" ", what, ": ", format_count(n), " (", format_bytes(n * element), ")\n"});
  };
  std::string text = table.str();
  text += count("Total params", graph.weights + graph.state);
  text += count("Trainable params", graph.weights);
  text += count("Non-trainable params", graph.state);
  text += count("Optimizer params", graph.weights * optimizer_slots);
  text += lockstep::text({" Gradients: ", format_bytes(plan.gradient_bytes), "\n"});
  text += lockstep::text({" Activations: ", format_bytes(plan.example_bytes), " an example (",
                          format_bytes(plan.example_bytes_unshared), " without reuse) + ",
                          format_bytes(plan.step_bytes), " a step, library scratch not counted\n"});
  text += lockstep::text({" Forward pass: ", readable_flops(graph.flops), " an example\n"});
  const int again = plan.recomputed_steps,
            steps = PlanOf<Net, D>::plan.steps;  // in the list below nvcc 13 errs over them
  if (again > 0)
    text += lockstep::text({" Recomputed in backward: ", again, " of ", steps, " steps, ",
                            readable_flops(plan.recomputed_flops), " an example\n"});
  const std::vector<std::string> fused = fused_names<Net, D>();
  for (std::size_t i = 0; i < fused.size(); ++i)
    text +=
        lockstep::text({i == 0 ? lockstep::text({" Fused on ", D::name, ": "}) : ", ", fused[i]});
  if (!fused.empty()) text += "\n";
  return text;
}

}  // namespace lockstep::detail
