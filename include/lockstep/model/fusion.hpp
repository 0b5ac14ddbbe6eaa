/// \file
/// The first stage of a plan: removes views and applies the device's rewrite rules. Invariants:
/// rules match along the data flow, not the list of nodes; a fused step stands at the position of
/// its last op, where its other operands are available; ops are not fused if their weights are not
/// adjacent, if only some of those with parameters are frozen, if more than one has several operands,
/// if the edge of a Recompute block separates them, or if one is in InBlocks; each rule is one linear pass.
/// \code
///   graph    conv2d   batch_normalization   flatten   re_lu   dense
///   views    conv2d   batch_normalization             re_lu   dense
///   rules    conv2d   batch_normalization+re_lu               dense
/// \endcode
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/layers/reshaping/flatten.hpp"
#include "lockstep/model/graph.hpp"

namespace lockstep::detail {

/// A step of the plan: one node of the graph, or several fused ones. `type` and `op` refer to the
/// plan's pool.
struct PlanStep : Node {
  static constexpr int max_fused = 8;
  int node_count = 1;                          ///< number of layers in the step
  std::array<std::size_t, max_fused> nodes{};  ///< their indices in the graph
};

/// The names of the step's layers: "conv2d", "conv2d+re_lu".
LOCKSTEP_COLD_DECL std::string layers_of(const PlanStep& step, const Node* nodes);

/// The steps in the order of forward, as input of the next pass.
template <std::size_t Size, std::size_t Operands>
struct StepList {
  Table<StepId, PlanStep, Size> step{};
  std::array<ValueId, Operands> operand{};  ///< of all steps, as in Graph; some belong to no step
  StepId end{};
  ValueId output{};

  constexpr std::span<const ValueId> operands_of(const PlanStep& s) const {
    return s.operands_of(operand);
  }
  /// The first operand of a step.
  constexpr ValueId input_of(const PlanStep& s) const { return operand[s.operands_begin]; }
};

template <class Ops, std::size_t Size, std::size_t Operands>
struct FusedGraph : StepList<Size, Operands> {
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

/// The rules of device D whose ops occur in the model.
template <class D, class Ops>
using RulesOf = decltype(applicable<Ops>(typename D::fusions{}));
/// The model's ops and the results of the rules.
template <class D, class Ops>
using PlanOps = Union<Ops, decltype(results(RulesOf<D, Ops>{}))>;

/// Number of steps that read each value, and the last of them. The model's output counts one more
/// reader, after the last step.
template <std::size_t Size>
struct Readers {
  Table<ValueId, int, Size> count{};
  Table<ValueId, StepId, Size> last{};
};
template <std::size_t Size, std::size_t Operands>
constexpr Readers<Size> readers_of(const StepList<Size, Operands>& steps) {
  Readers<Size> result;
  const auto reads = [&](ValueId v, StepId i) {
    result.last[v] = i;
    ++result.count[v];
  };
  for (StepId i{}; i < steps.end; ++i)
    for (const ValueId v : steps.operands_of(steps.step[i])) reads(v, i);
  reads(steps.output, steps.end);
  return result;
}

/// Consecutive steps along the data flow, each the only reader of the result before it.
template <std::size_t Length>
struct Chain {
  std::array<StepId, Length> at{};
  std::size_t merging = 0;  ///< the one with several operands, if there is one
  bool found = false;
};

/// The chain with op types `wanted` that begins with step `first`.
template <std::size_t Size, std::size_t Operands, std::size_t Length>
constexpr Chain<Length> chain_from(const StepList<Size, Operands>& steps,
                                   const Readers<Size>& readers,
                                   const std::array<int, Length>& wanted, StepId first) {
  Chain<Length> result;
  result.at[0] = first;
  if (steps.step[first].type != wanted[0]) return result;
  for (std::size_t k = 1; k < Length; ++k) {
    const ValueId v = steps.step[result.at[k - 1]].out;
    if (readers.count[v] != 1 || readers.last[v] == steps.end) return result;
    result.at[k] = readers.last[v];
    const PlanStep& next = steps.step[result.at[k]];
    if (next.type != wanted[k] || next.segment != steps.step[first].segment || next.in_blocks)
      return result;
    if (next.operands() == 1) continue;
    if (result.merging > 0 || steps.step[first].operands() > 1) return result;
    result.merging = k;
  }
  result.found = true;
  return result;
}

/// Whether the weights of the steps form one contiguous range, and likewise their state, as a
/// kernel has one pointer for each, and all steps with parameters or none of them are frozen. Weights
/// with several calls are not joined to others.
template <std::size_t Size, std::size_t Operands, std::size_t Length>
constexpr bool ranges_adjoin(const StepList<Size, Operands>& steps,
                             const std::array<StepId, Length>& at) {
  std::size_t w_end = 0, state_end = 0;
  bool has_weights = false, has_shared = false, has_frozen = false, has_other = false;
  for (const StepId i : at) {
    const PlanStep& s = steps.step[i];
    const bool is_shared = has_several_calls(s);
    if (s.w_count > 0 && has_weights && (is_shared || has_shared)) return false;
    has_weights = has_weights || s.w_count > 0;
    has_shared = has_shared || is_shared;
    has_frozen = has_frozen || s.is_frozen;
    has_other = has_other || (!s.is_frozen && s.w_count + s.state_count > 0);
    if (has_frozen && has_other) return false;
    if ((s.w_count > 0 && w_end > 0 && s.w != w_end) ||
        (s.state_count > 0 && state_end > 0 && s.state != state_end))
      return false;
    if (s.w_count > 0) w_end = s.w + s.w_count;
    if (s.state_count > 0) state_end = s.state + s.state_count;
  }
  return true;
}

/// The operands of a fused step: what the chain begins with, then the others of the merging step, in
/// whose range they are.
/// \code
///   batch_normalization of 1 to 2; add of 4, 2         operands  1   4, 2
///   batch_normalization+add                                          1, 4
/// \endcode
template <std::size_t Size, std::size_t Operands, std::size_t Length>
constexpr void join_operands(StepList<Size, Operands>& steps, const Chain<Length>& chain,
                             PlanStep& fused) {
  if (chain.merging == 0) return;
  const PlanStep& merging = steps.step[chain.at[chain.merging]];
  const ValueId within = steps.step[chain.at[chain.merging - 1]].out;
  std::size_t k = merging.operands_begin;
  while (steps.operand[k] != within) ++k;
  for (; k > merging.operands_begin; --k) steps.operand[k] = steps.operand[k - 1];
  steps.operand[k] = steps.input_of(fused);
  fused.operands_begin = merging.operands_begin;
  fused.operands_end = merging.operands_end;
}

/// A step with the layers, weights and state of all steps of the chain; its op is still the first
/// one's.
template <std::size_t Size, std::size_t Operands, std::size_t Length>
constexpr PlanStep join_steps(StepList<Size, Operands>& steps, const Chain<Length>& chain) {
  PlanStep fused = steps.step[chain.at[0]];
  join_operands(steps, chain, fused);
  for (std::size_t k = 1; k < Length; ++k) {
    const PlanStep& part = steps.step[chain.at[k]];
    for (int j = 0; j < part.node_count; ++j)
      fused.nodes[static_cast<std::size_t>(fused.node_count++)] =
          part.nodes[static_cast<std::size_t>(j)];
    if (fused.w_count == 0) {
      fused.w = part.w;
      fused.first = part.first;
      fused.users = part.users;
    }
    fused.w_count += part.w_count;
    if (fused.state_count == 0) fused.state = part.state;
    fused.state_count += part.state_count;
    fused.is_frozen = fused.is_frozen || part.is_frozen;
    fused.out = part.out;
  }
  return fused;
}

/// Removes the steps with type -1.
template <std::size_t Size, std::size_t Operands>
constexpr void drop_joined(StepList<Size, Operands>& steps) {
  StepId kept{};
  for (StepId i{}; i < steps.end; ++i) {
    if (steps.step[i].type < 0) continue;
    if (kept != i) steps.step[kept] = steps.step[i];
    ++kept;
  }
  steps.end = kept;
}

/// Applies one rule of device D to the whole graph. `wants_input`: the gradient of the batch is
/// needed.
template <class D, class Rule, class Ops, std::size_t Size, std::size_t Operands, class... Pattern,
          std::size_t... K>
constexpr void apply_rule(FusedGraph<Ops, Size, Operands>& p, bool wants_input, List<Pattern...>,
                          std::index_sequence<K...>) {
  constexpr std::size_t length = sizeof...(Pattern);
  using Result = typename Rule::result;
  const std::array<int, length> wanted{index_in<Pattern>(Ops{})...};
  const Readers<Size> readers = readers_of(p);
  for (StepId i{}; i < p.end; ++i) {
    if constexpr (requires { requires Result::reads_batch; }) {
      if (wants_input || p.input_of(p.step[i]) != ValueId::batch) continue;
    }
    const Chain<length> chain = chain_from(p, readers, wanted, i);
    if (!chain.found || !ranges_adjoin(p, chain.at)) continue;
    const auto op_at = [&]<class TheOp>(std::size_t k) -> const TheOp& {
      return p.pool.template of<TheOp>().op[p.step[chain.at[k]].op];
    };
    if constexpr (requires(const Pattern&... ops) { Result::fits(ops...); }) {
      if (!Result::fits(op_at.template operator()<Pattern>(K)...)) continue;
    }
    const Result result { op_at.template operator()<Pattern>(K)... };
    if constexpr (requires { Kernel<Result, D>::fits(result); }) {
      if (!Kernel<Result, D>::fits(result)) continue;
    }
    PlanStep fused = join_steps(p, chain);
    fused.op = p.pool.template of<Result>().add(result);
    fused.type = index_in<Result>(Ops{});
    if constexpr (requires { Result::draws_with; }) {
      const PlanStep& drawing = p.step[chain.at[Result::draws_with]];
      fused.name = drawing.name;
      fused.block = drawing.block;
      fused.ordinal = drawing.ordinal;
      fused.call = drawing.call;
    }
    for (const StepId part : chain.at) p.step[part].type = -1;
    p.step[chain.at[length - 1]] = fused;
  }
  drop_joined(p);
}

/// The values that nodes read from memory of their own.
template <std::size_t Size>
constexpr Table<ValueId, bool, Size> values_read(std::span<const Node> nodes,
                                                 std::span<const ValueId> operands,
                                                 ValueId output) {
  Table<ValueId, bool, Size> result{};
  for (const Node& n : nodes)
    if (!n.reads_row)
      for (const ValueId v : n.operands_of(operands)) result[v] = true;
  result[output] = true;
  return result;
}

/// Appends the nodes that are not views and replaces the output of each view by its input. `view`
/// is the type index of views. Parts of the network's row, of type index `part`, are left out if all
/// that reads them reads the row itself.
template <std::size_t Size, std::size_t Operands>
constexpr void add_nodes(StepList<Size, Operands>& steps, std::span<const Node> nodes,
                         std::span<const ValueId> operands, int view, int part, ValueId output) {
  Table<ValueId, ValueId, Size> alias{};  // the value that an output of a view stands for
  Table<ValueId, bool, Size> is_read{};
  if (part >= 0) is_read = values_read<Size>(nodes, operands, output);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Node& n = nodes[i];
    alias[n.out] = n.type == view ? alias[operands[n.operands_begin]] : n.out;
    if (n.type == view || (n.type == part && !is_read[n.out])) continue;
    PlanStep& s = steps.step[steps.end];
    static_cast<Node&>(s) = n;
    s.nodes[0] = i;
    for (std::size_t k = n.operands_begin; k < n.operands_end; ++k)
      steps.operand[k] = n.reads_row ? ValueId::batch : alias[operands[k]];
    ++steps.end;
  }
  steps.output = alias[output];
}

/// The steps of `graph` on device D. Longer rules are applied first.
template <class D, auto& graph, class... Rules>
constexpr auto fuse(List<Rules...>, bool wants_input = false) {
  using GraphOps = typename std::remove_cvref_t<decltype(graph)>::ops;
  using Ops = PlanOps<D, GraphOps>;
  constexpr std::size_t nodes = static_cast<std::size_t>(graph.nodes);
  FusedGraph<Ops, nodes + 1, graph.operand.size()> p;
  const auto copy = [&]<class... Os>(List<Os...>) {
    const auto copy_bin = [](auto& to, const auto& from) {
      for (std::size_t i = 0; i < from.count; ++i) to.op[i] = from.op[i];
      to.count = from.count;
    };
    (copy_bin(p.pool.template of<Os>(), graph.pool.template of<Os>()), ...);
  };
  copy(GraphOps{});
  const auto plan_type = [&]<class... Os>(int type, List<Os...>) {
    int i = 0, result = -1;
    for (const int t : std::initializer_list<int>{index_in<Os>(Ops{})...})
      if (i++ == type) result = t;
    return result;
  };
  add_nodes(p, std::span(graph.node).first(nodes), graph.operand, index_in<ViewOp>(GraphOps{}),
            index_in<RowSliceOp>(GraphOps{}), graph.output);
  for (StepId i{}; i < p.end; ++i) p.step[i].type = plan_type(p.step[i].type, GraphOps{});
  for (std::size_t length = PlanStep::max_fused; length > 1; --length) {
    [[maybe_unused]] const auto apply = [&]<class Rule>() {
      static_assert(Rule::pattern::size >= 2 &&
                        Rule::pattern::size <= static_cast<std::size_t>(PlanStep::max_fused),
                    "lockstep::Fuse: a rule fuses two to eight ops; split it");
      if (Rule::pattern::size == length)
        apply_rule<D, Rule>(p, wants_input, typename Rule::pattern{},
                            std::make_index_sequence<Rule::pattern::size>{});
    };
    (apply.template operator()<Rules>(), ...);
  }
  return p;
}

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/model/fusion.ipp"
#endif
