/// \file
/// A network over (steps) as the network of one step, with the same layers, names and parameters.
/// Invariant: values, operands and weights are those of the network's graph; only ops and shapes differ.
/// \code
///   graph   (256)  embedding  (256, 64)  multi_head_attention  (256, 64)  dense  (256, 1000)
///   step    (1)    embedding  (1, 64)    CachedAttentionOp     (1, 64)    dense  (1, 1000)
/// \endcode
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include "lockstep/inference/one_step.hpp"
#include "lockstep/model/graph.hpp"

namespace lockstep::detail {

/// Whether all ops of type O in the graph have a form for one step.
template <auto& graph, class O>
constexpr bool steps_fit() {
  const auto& bin = graph.pool.template of<O>();
  if constexpr (HasOneStep<O>) {
    for (std::size_t i = 0; i < bin.count; ++i)
      if (!OneStep<O>::fits(bin.op[i])) return false;
    return true;
  } else {
    return bin.count == 0;
  }
}
/// List<Op> of the first op type that does not fit; List<> if all do.
template <auto& graph, class... Ops>
auto first_mixing(List<Ops...>) {
  constexpr bool fit[] = {steps_fit<graph, Ops>()..., true};
  constexpr std::size_t first = [] {
    std::size_t i = 0;
    while (i < sizeof...(Ops) && fit[i]) ++i;
    return i;
  }();
  if constexpr (first < sizeof...(Ops))
    return List<At<first, Ops...>>{};
  else
    return List<>{};
}

/// The op of one step as a list; empty if the graph has no such op.
template <class O, bool Occurs>
struct StepOps {
  using type = List<>;
};
template <class O>
struct StepOps<O, true> {
  using type = List<typename OneStep<O>::type>;
};
template <auto& graph, class... Ops>
auto step_ops(List<Ops...>)
    -> Union<typename StepOps<Ops, (graph.pool.template of<Ops>().count > 0)>::type...>;

template <class Ops, std::size_t Size, std::size_t Operands>
struct StepGraph {
  using ops = Ops;
  std::array<Node, Size> node{};
  std::array<ValueId, Operands> operand{};
  Table<ValueId, Shape, Size> value{};
  OpPool<Size, Ops> pool{};
  int nodes = 0;
  ValueId output{};
  std::size_t weights = 0, state = 0;
  bool sound = true;  ///< the op of each step has the shape that it should have
};

/// The graph of one step of `graph`, whose ops all fit.
template <auto& graph>
constexpr auto step_graph() {
  using Ops = typename std::remove_cvref_t<decltype(graph)>::ops;
  using OfStep = decltype(step_ops<graph>(Ops{}));
  StepGraph<OfStep, graph.node.size(), graph.operand.size()> g;
  g.node = graph.node;
  g.operand = graph.operand;
  g.nodes = graph.nodes;
  g.output = graph.output;
  g.weights = graph.weights;
  g.state = graph.state;
  g.value[ValueId::batch] = one_step_of(graph.value[ValueId::batch]);
  const auto set = [&]<class O>(Node& n, List<O>) {
    if constexpr (graph.pool.template of<O>().count > 0) {
      if (n.type != index_in<O>(Ops{})) return false;
      using Step = typename OneStep<O>::type;
      const Step op = OneStep<O>::of(graph.pool.template of<O>().op[n.op]);
      n.type = index_in<Step>(OfStep{});
      n.op = g.pool.template of<Step>().add(op);
      n.flops = 0;
      if constexpr (requires { op.flops(); }) n.flops = op.flops();
      g.value[n.out] = op.out();
      g.sound = g.sound && op.out() == one_step_of(graph.value[n.out]);
      return true;
    }
    return false;
  };
  const auto set_any = [&]<class... Os>(Node& n, List<Os...>) {
    static_cast<void>((set(n, List<Os>{}) || ...));
  };
  for (int i = 0; i < g.nodes; ++i) set_any(g.node[static_cast<std::size_t>(i)], Ops{});
  return g;
}

/// The network of one step of Net, whose ops all fit.
template <class Net>
struct StepNetwork {
  static constexpr auto graph = step_graph<Net::graph>();
  static constexpr bool valid = graph.sound;
  static constexpr Shape input_shape = shape(1), output_shape = graph.value[graph.output];
};

}  // namespace lockstep::detail
