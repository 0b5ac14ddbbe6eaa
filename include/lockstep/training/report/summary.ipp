#pragma once

#include "lockstep/training/report/summary.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/training/parameters.hpp"

namespace lockstep::detail {

TextTable::TextTable(Row header, std::size_t first, std::size_t last)
    : first_(first), last_(last), width_(header.size()) {
  add(std::move(header));
}

void TextTable::add(Row row) {
  for (std::size_t c = 0; c < row.size(); ++c) width_[c] = std::max(width_[c], columns(row[c]));
  rows_.push_back(std::move(row));
}

std::string TextTable::str() const {
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

std::size_t TextTable::columns(std::string_view cell) {
  std::size_t count = 0;
  for (const char c : cell) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

std::string TextTable::rule(std::string_view left, std::string_view line, std::string_view cross,
                            std::string_view right) const {
  std::string text(left);
  for (std::size_t c = 0; c < width_.size(); ++c) {
    for (std::size_t i = 0; i < width_[c] + 2; ++i) text += line;
    text += c + 1 == width_.size() ? right : cross;
  }
  return text + "\n";
}

inline std::string readable_flops(double flops) {
  static constexpr std::array<const char*, 4> units{"FLOPs", "kFLOPs", "MFLOPs", "GFLOPs"};
  std::size_t unit = 0;
  for (; flops >= 1000 && unit + 1 < units.size(); ++unit) flops /= 1000;
  return format_text("{:.{}f} {}", flops, unit == 0 ? 0 : 2, units[unit]);
}

std::vector<std::string> fused_names(const SummaryFacts& model) {
  std::vector<std::string> result;
  for (const PlacedStep& s : model.steps)
    if (s.node_count > 1) result.push_back(layers_of(s, model.nodes.data()));
  return result;
}

/// Whether some layer's input is not the previous layer's output.
inline bool has_branches(const SummaryFacts& model) {
  ValueId last = ValueId::batch;
  for (const Node& n : model.nodes) {
    if (n.operands() > 1 || n.operands_of(model.operands).front() != last) return true;
    last = n.out;
  }
  return false;
}

std::string summary_of(const SummaryFacts& model, std::size_t slot_elements,
                       std::size_t own_elements, std::size_t held) {
  TextTable::Row header{"Layer (type)", "Output Shape", "FLOPs", "Param #"};
  const bool branches = has_branches(model);
  if (branches) header.push_back("Connected to");
  TextTable table(std::move(header), 3, 3);
  for (const Node& n : model.nodes) {
    if (n.is_activation || n.call > 0) continue;
    std::size_t parameters = 0;
    for (const NamedParameter& p : model.parameters)
      if (is_of(p, n)) parameters += p.shape.size();
    double flops = 0;
    std::string inputs;
    for (const Node& call : model.nodes)
      if (&call == &n ||
          (call.call > 0 && &model.nodes[static_cast<std::size_t>(call.first_call)] == &n)) {
        flops += call.flops;
        for (const ValueId in : call.operands_of(model.operands))
          add_item(inputs, ", ", value_name(model.nodes, in));
      }
    TextTable::Row row{layer_name(n) + " (" + std::string(n.class_name) + ")",
                       to_string(model.values[static_cast<std::size_t>(n.out)], "None"),
                       flops > 0 ? readable_flops(flops) : "0", format_count(parameters)};
    if (branches) row.push_back(inputs);
    table.add(std::move(row));
  }
  const auto count = [&](const char* what, std::size_t n) {
    return format_text(" {}: {} ({})\n", what, format_count(n), format_bytes(n * model.element));
  };
  std::string text = table.str();
  text += count("Total params", model.weights + model.state);
  text += count("Trainable params", model.weights - held);
  text += count("Non-trainable params", model.state + held);
  text += count("Optimizer params", slot_elements);
  if (own_elements < slot_elements)
    text += count("Optimizer params of this process' first replica", own_elements);
  text += format_text(" Gradients: {}\n", format_bytes(model.gradient_bytes));
  text += format_text(
      " Activations: {} per example ({} without reuse) + {} per step, without library workspace\n",
      format_bytes(model.example_bytes), format_bytes(model.example_bytes_unshared),
      format_bytes(model.step_bytes));
  text += format_text(" Forward pass: {} per example\n", readable_flops(model.flops));
  const int again = model.recomputed_steps;
  const std::size_t steps = model.steps.size();
  if (again > 0)
    text += format_text(" Recomputed in backward: {} of {} steps, {} per example\n", again, steps,
                        readable_flops(model.recomputed_flops));
  const std::vector<std::string> fused = fused_names(model);
  for (std::size_t i = 0; i < fused.size(); ++i)
    text +=
        format_text("{}{}", i == 0 ? format_text(" Fused on {}: ", model.device) : ", ", fused[i]);
  if (!fused.empty()) text += "\n";
  return text;
}

}  // namespace lockstep::detail
