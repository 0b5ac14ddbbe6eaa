/// \file
/// The first stage of a plan: views dropped, the device's rewrite rules applied. Invariants: a
/// chain of ops is followed along the data flow, not the list; a fused step stands where its last
/// op stood, so that its second operand is ready; ops whose weights do not adjoin, or that
/// Recompute parts, are not joined; each rule is one linear pass.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <utility>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/model/graph.hpp"

namespace lockstep::detail {

/// A node as the plan runs it. `type` and `op` refer to the plan's own pool.
struct PlanStep : Node {
  static constexpr int max_fused = 8;
  int node_count = 1;                          ///< layers that this step does
  std::array<std::size_t, max_fused> nodes{};  ///< their places in the graph
};

/// The layers that a step does: "conv2d", "conv2d+re_lu".
[[gnu::cold]] inline std::string layers_of(const PlanStep& step, const Node* nodes) {
  std::string names;
  for (int k = 0; k < step.node_count; ++k) {
    const Node& n = nodes[step.nodes[static_cast<std::size_t>(k)]];
    if (k > 0) names += '+';
    names += n.is_activation ? std::string(n.class_name) : layer_name(n.name, n.ordinal);
  }
  return names;
}

/// The steps in the order of forward; the next pass of a plan reads them.
template <std::size_t Size>
struct StepList {
  Table<StepId, PlanStep, Size> step{};
  StepId end{};
  ValueId output{};
};

template <class Ops, std::size_t Size>
struct FusedGraph : StepList<Size> {
  OpPool<Size, Ops> pool{};
};

template <class Ops, class... Pattern>
constexpr bool has_all(List<Pattern...>) {
  return ((index_in<Pattern>(Ops{}) >= 0) && ...);
}
template <class Ops, class Rule>
using IfApplicable = std::conditional_t<has_all<Ops>(typename Rule::pattern{}), List<Rule>, List<>>;
template <class Ops, class... Rules>
auto applicable(List<Rules...>) -> typename Concat<IfApplicable<Ops, Rules>...>::type;
template <class... Rules>
auto results(List<Rules...>) -> List<typename Rules::result...>;

/// The rules of device D whose ops the model has.
template <class D, class Ops>
using RulesOf = decltype(applicable<Ops>(typename D::fusions{}));
/// The model's ops and the results of the rules.
template <class D, class Ops>
using PlanOps = Union<Ops, decltype(results(RulesOf<D, Ops>{}))>;

/// One rule of device D over the whole graph.
template <class D, class Rule, class Ops, std::size_t Size, class... Pattern, std::size_t... K>
constexpr void apply_rule(FusedGraph<Ops, Size>& p, List<Pattern...>, std::index_sequence<K...>) {
  constexpr std::size_t length = sizeof...(Pattern);
  using Result = typename Rule::result;
  const std::array<int, length> wanted{index_in<Pattern>(Ops{})...};
  Table<ValueId, StepId, Size> reader{};
  Table<ValueId, int, Size> readers{};
  const auto reads = [&](ValueId v, StepId i) {
    if (!exists(v)) return;
    reader[v] = i;
    ++readers[v];
  };
  for (StepId i{}; i < p.end; ++i) {
    reads(p.step[i].in0, i);
    reads(p.step[i].in1, i);
  }
  reads(p.output, p.end);  // somebody outside reads the output

  for (StepId i{}; i < p.end; ++i) {
    if (p.step[i].type != wanted[0]) continue;
    if constexpr (requires { requires Result::reads_batch; }) {
      if (p.step[i].in0 != ValueId::batch) continue;
    }
    std::array<StepId, length> at{i};
    ValueId second = p.step[i].in1;
    std::size_t k = 1;
    for (; k < length; ++k) {
      const ValueId v = p.step[at[k - 1]].out;
      if (readers[v] != 1 || reader[v] == p.end) break;
      at[k] = reader[v];
      const PlanStep& next = p.step[at[k]];
      if (next.type != wanted[k] || next.segment != p.step[at[0]].segment) break;
      if (exists(next.in1)) second = next.in0 == v ? next.in1 : next.in0;
    }
    if (k != length) continue;
    // A kernel sees its weights as one range, and so its state.
    std::size_t w_end = 0, state_end = 0;
    bool adjoin = true;
    for (const StepId j : at) {
      const PlanStep& part = p.step[j];
      adjoin = adjoin && (part.w_count == 0 || w_end == 0 || part.w == w_end) &&
               (part.state_count == 0 || state_end == 0 || part.state == state_end);
      if (part.w_count > 0) w_end = part.w + part.w_count;
      if (part.state_count > 0) state_end = part.state + part.state_count;
    }
    if (!adjoin) continue;
    const auto op_at = [&]<class TheOp>(std::size_t j) -> const TheOp& {
      return p.pool.template of<TheOp>().op[p.step[at[j]].op];
    };
    if constexpr (requires(const Pattern&... ops) { Result::fits(ops...); }) {
      if (!Result::fits(op_at.template operator()<Pattern>(K)...)) continue;
    }
    const Result result { op_at.template operator()<Pattern>(K)... };
    if constexpr (requires { Kernel<Result, D>::fits(result); }) {
      if (!Kernel<Result, D>::fits(result)) continue;
    }
    PlanStep fused = p.step[at[0]];
    fused.op = p.pool.template of<Result>().add(result);
    fused.type = index_in<Result>(Ops{});
    fused.out = p.step[at[length - 1]].out;
    fused.in1 = second;
    for (k = 1; k < length; ++k) {
      const PlanStep& part = p.step[at[k]];
      for (int j = 0; j < part.node_count; ++j)
        fused.nodes[static_cast<std::size_t>(fused.node_count++)] =
            part.nodes[static_cast<std::size_t>(j)];
      if (fused.w_count == 0) fused.w = part.w;
      fused.w_count += part.w_count;
      if (fused.state_count == 0) fused.state = part.state;
      fused.state_count += part.state_count;
    }
    for (k = 0; k + 1 < length; ++k) p.step[at[k]].type = -1;
    p.step[at[length - 1]] = fused;
  }
  StepId kept{};
  for (StepId j{}; j < p.end; ++j) {
    if (p.step[j].type < 0) continue;
    if (kept != j) p.step[kept] = p.step[j];
    ++kept;
  }
  p.end = kept;
}

/// The steps of `graph` on device D, the longest rules first.
template <class D, auto& graph, class... Rules>
constexpr auto fuse(List<Rules...>) {
  using GraphOps = typename std::remove_cvref_t<decltype(graph)>::ops;
  using Ops = PlanOps<D, GraphOps>;
  constexpr std::size_t nodes = static_cast<std::size_t>(graph.nodes);
  FusedGraph<Ops, nodes + 1> p;
  const auto copy = [&]<class... Os>(List<Os...>) {
    ((p.pool.template of<Os>().op = graph.pool.template of<Os>().op,
      p.pool.template of<Os>().count = graph.pool.template of<Os>().count),
     ...);
  };
  copy(GraphOps{});
  const auto plan_type = [&]<class... Os>(int type, List<Os...>) {
    int i = 0, result = -1;
    for (const int t : std::initializer_list<int>{index_in<Os>(Ops{})...})
      if (i++ == type) result = t;
    return result;
  };
  Table<ValueId, ValueId, nodes + 1> alias{};  // the value that a value is another name of
  for (std::size_t i = 0; i < nodes; ++i) {
    PlanStep s;
    static_cast<Node&>(s) = graph.node[i];
    s.nodes[0] = i;
    s.in0 = alias[s.in0];
    if (exists(s.in1)) s.in1 = alias[s.in1];
    alias[s.out] = s.type == index_in<ViewOp>(GraphOps{}) ? s.in0 : s.out;
    if (alias[s.out] != s.out) continue;
    s.type = plan_type(s.type, GraphOps{});
    p.step[p.end] = s;
    ++p.end;
  }
  p.output = alias[graph.output];
  for (std::size_t length = PlanStep::max_fused; length > 1; --length) {
    [[maybe_unused]] const auto apply = [&]<class Rule>() {
      static_assert(Rule::pattern::size >= 2 &&
                        Rule::pattern::size <= static_cast<std::size_t>(PlanStep::max_fused),
                    "lockstep::Fuse: a rule joins two to eight ops; split it");
      if (Rule::pattern::size == length)
        apply_rule<D, Rule>(p, typename Rule::pattern{},
                            std::make_index_sequence<Rule::pattern::size>{});
    };
    (apply.template operator()<Rules>(), ...);
  }
  return p;
}

}  // namespace lockstep::detail
