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
  int node_count = 1;                  ///< layers that this step does
  std::array<int, max_fused> nodes{};  ///< their places in the graph
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

template <class Ops, std::size_t N>
struct FusedGraph {
  std::array<PlanStep, N + 1> step{};
  OpPool<N + 1, Ops> pool{};
  int steps = 0, output = 0;
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
template <class D, class Rule, class Ops, std::size_t N, class... Pattern, std::size_t... K>
constexpr void apply_rule(FusedGraph<Ops, N>& p, List<Pattern...>, std::index_sequence<K...>) {
  constexpr std::size_t length = sizeof...(Pattern);
  using Result = typename Rule::result;
  const std::array<int, length> wanted{index_in<Pattern>(Ops{})...};
  std::array<int, N + 1> reader{}, readers{};
  const auto reads = [&](int v, int i) {
    if (v < 0) return;
    reader[static_cast<std::size_t>(v)] = i;
    ++readers[static_cast<std::size_t>(v)];
  };
  for (int i = 0; i < p.steps; ++i) {
    reads(p.step[static_cast<std::size_t>(i)].in0, i);
    reads(p.step[static_cast<std::size_t>(i)].in1, i);
  }
  reads(p.output, p.steps);  // somebody outside reads the output

  for (int i = 0; i < p.steps; ++i) {
    if (p.step[static_cast<std::size_t>(i)].type != wanted[0]) continue;
    if constexpr (requires { requires Result::reads_batch; }) {
      if (p.step[static_cast<std::size_t>(i)].in0 != 0) continue;
    }
    std::array<std::size_t, length> at{static_cast<std::size_t>(i)};
    int second = p.step[at[0]].in1;
    std::size_t k = 1;
    for (; k < length; ++k) {
      const int v = p.step[at[k - 1]].out;
      if (readers[static_cast<std::size_t>(v)] != 1 ||
          reader[static_cast<std::size_t>(v)] == p.steps)
        break;
      at[k] = static_cast<std::size_t>(reader[static_cast<std::size_t>(v)]);
      const PlanStep& next = p.step[at[k]];
      if (next.type != wanted[k] || next.segment != p.step[at[0]].segment) break;
      if (next.in1 >= 0) second = next.in0 == v ? next.in1 : next.in0;
    }
    if (k != length) continue;
    // A kernel sees its weights as one range, and so its state.
    std::size_t w_end = 0, state_end = 0;
    bool adjoin = true;
    for (const std::size_t j : at) {
      const PlanStep& part = p.step[j];
      adjoin = adjoin && (part.w_count == 0 || w_end == 0 || part.w == w_end) &&
               (part.state_count == 0 || state_end == 0 || part.state == state_end);
      if (part.w_count > 0) w_end = part.w + part.w_count;
      if (part.state_count > 0) state_end = part.state + part.state_count;
    }
    if (!adjoin) continue;
    const auto op_at = [&]<class TheOp>(std::size_t j) -> const TheOp& {
      return p.pool.template of<TheOp>().op[static_cast<std::size_t>(p.step[at[j]].op)];
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
  int kept = 0;
  for (int j = 0; j < p.steps; ++j) {
    if (p.step[static_cast<std::size_t>(j)].type < 0) continue;
    if (kept != j) p.step[static_cast<std::size_t>(kept)] = p.step[static_cast<std::size_t>(j)];
    ++kept;
  }
  p.steps = kept;
}

/// The steps of `graph` on device D, the longest rules first.
template <class D, auto& graph, class... Rules>
constexpr auto fuse(List<Rules...>) {
  using GraphOps = typename std::remove_cvref_t<decltype(graph)>::ops;
  using Ops = PlanOps<D, GraphOps>;
  constexpr std::size_t N = static_cast<std::size_t>(graph.nodes);
  FusedGraph<Ops, N> p;
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
  std::array<int, N + 1> alias{};  // the value that a value is another name of
  for (std::size_t v = 0; v <= N; ++v) alias[v] = static_cast<int>(v);
  for (std::size_t i = 0; i < N; ++i) {
    PlanStep s;
    static_cast<Node&>(s) = graph.node[i];
    s.nodes[0] = static_cast<int>(i);
    s.in0 = alias[static_cast<std::size_t>(s.in0)];
    if (s.in1 >= 0) s.in1 = alias[static_cast<std::size_t>(s.in1)];
    if (s.type == index_in<ViewOp>(GraphOps{})) {
      alias[static_cast<std::size_t>(s.out)] = s.in0;
    } else {
      s.type = plan_type(s.type, GraphOps{});
      p.step[static_cast<std::size_t>(p.steps++)] = s;
    }
  }
  p.output = alias[static_cast<std::size_t>(graph.output)];
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
