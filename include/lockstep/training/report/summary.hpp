/// \file
/// `model.summary()`: Keras' table of layers, plus memory and FLOPs.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/model/plan.hpp"

namespace lockstep::detail {

/// A text table with box-drawing rules, as rich's in Keras 3.
class TextTable {
 public:
  using Row = std::vector<std::string>;

  /// Columns `first` to `last` hold numbers and are right-aligned.
  LOCKSTEP_COLD_DECL TextTable(Row header, std::size_t first, std::size_t last);
  LOCKSTEP_COLD_DECL void add(Row row);
  LOCKSTEP_COLD_DECL std::string str() const;

 private:
  /// Width of a cell: its number of UTF-8 code points.
  LOCKSTEP_COLD_DECL static std::size_t columns(std::string_view cell);
  LOCKSTEP_COLD_DECL std::string rule(std::string_view left, std::string_view line,
                                      std::string_view cross, std::string_view right) const;
  std::size_t first_, last_;
  std::vector<std::size_t> width_;
  std::vector<Row> rows_;
};

/// The facts about a model and its plan that a summary shows, without the model's type.
struct SummaryFacts {
  std::span<const Node> nodes;
  std::span<const ValueId> operands;  ///< of all nodes
  std::span<const Shape> values;
  std::span<const NamedParameter> parameters;
  std::span<const PlacedStep> steps;
  std::string_view device;
  std::size_t element;         ///< bytes per element
  std::size_t weights, state;  ///< elements
  std::size_t gradient_bytes;
  std::size_t example_bytes, example_bytes_unshared;  ///< of the arena, per example
  std::size_t step_bytes;                             ///< of the arena, independent of the batch
  double flops, recomputed_flops;                     ///< of one example
  int recomputed_steps;
};

/// The facts of network Net on device D.
template <class Net, class D>
constexpr SummaryFacts summary_facts() {
  constexpr auto& graph = Net::graph;
  constexpr auto& steps = PlanOf<Net, D>::plan;
  constexpr auto& plan = lockstep::plan<Net, D>;
  const auto first = [](const auto& all, int count) {
    return std::span(all.begin(), static_cast<std::size_t>(count));
  };
  return {first(graph.node, graph.nodes),
          graph.operand,
          std::span(graph.value.begin(), graph.value.end()),
          first(graph.parameter, graph.parameters),
          first(steps.step, steps.steps),
          D::name,
          sizeof(typename D::real),
          graph.weights,
          graph.state,
          plan.gradient_bytes,
          plan.example_bytes,
          plan.example_bytes_unshared,
          plan.step_bytes,
          plan.flops,
          plan.recomputed_flops,
          plan.recomputed_steps};
}

/// Steps of the plan that compute several layers: "conv2d+re_lu".
LOCKSTEP_COLD_DECL std::vector<std::string> fused_names(const SummaryFacts& model);
template <class Net, class D>
std::vector<std::string> fused_names() {
  return fused_names(summary_facts<Net, D>());
}

/// The table, followed by totals. `slot_elements`: elements of the optimizer's buffers; `own_elements`: those of
/// the first replica of this process; `held`: weights that do not train at present.
LOCKSTEP_COLD_DECL std::string summary_of(const SummaryFacts& model, std::size_t slot_elements,
                                          std::size_t own_elements, std::size_t held);
template <class Net, class D>
std::string summary_of(std::size_t slot_elements, std::size_t own_elements, std::size_t held = 0) {
  return summary_of(summary_facts<Net, D>(), slot_elements, own_elements, held);
}

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/report/summary.ipp"
#endif
