/// \file
/// A model as one flat constexpr value: nodes, shapes, names, parameters and FLOPs, independent of
/// the device. Invariants: nodes are in the order of the forward pass; value 0 is the input;
/// construction is near-linear, since clang limits a constant expression to a million steps.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/concepts/layer.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/type_list.hpp"
#include "lockstep/model/index.hpp"
#include "lockstep/model/layer_names.hpp"

namespace lockstep::detail {

/// The distinct ops of one type, as values.
template <class TheOp, std::size_t Capacity>
struct OpBin {
  std::array<TheOp, Capacity> op{};
  std::size_t count = 0;
  constexpr std::size_t add(const TheOp& value) {
    for (std::size_t i = 0; i < count; ++i)
      if (op[i] == value) return i;
    op[count] = value;
    return count++;
  }
};
template <std::size_t Capacity, class Ops>
struct OpPool;
template <std::size_t Capacity, class... Ops>
struct OpPool<Capacity, List<Ops...>> : OpBin<Ops, Capacity>... {
  template <class TheOp>
  constexpr OpBin<TheOp, Capacity>& of() {
    return *this;
  }
  template <class TheOp>
  constexpr const OpBin<TheOp, Capacity>& of() const {
    return *this;
  }
};

/// A layer of the model.
struct Node {
  int type = 0;                               ///< index of the op's type in Graph::ops
  std::size_t op = 0;                         ///< index of the op's value in its OpBin
  ValueId in0{}, in1 = ValueId::none, out{};  ///< a unary op has no in1
  std::size_t w = 0, w_count = 0;             ///< range in the flat weights
  std::size_t state = 0, state_count = 0;
  std::string_view name, class_name;  ///< "conv2d", "Conv2D"
  std::string_view block;             ///< path of its named blocks, "decoder"; empty outside
  int ordinal = 0;                    ///< 0 for conv2d, 1 for conv2d_1
  bool is_activation = false;         ///< the activation of the layer before, whose name it shares
  int segment = -1;                   ///< block of Recompute; -1: none
  double flops = 0;                   ///< forward pass, per example
};

/// A parameter of the model.
struct NamedParameter : Parameter {
  std::string_view layer, block;
  int ordinal = 0;
  std::size_t offset = 0;  ///< in the flat weights, or in the flat state if not trainable
};

/// "conv2d", "conv2d_1".
[[gnu::cold]] inline std::string layer_name(std::string_view name, int ordinal) {
  return ordinal > 0 ? format_text("{}_{}", name, ordinal) : std::string(name);
}
/// "conv2d_1", "decoder/conv2d_1".
[[gnu::cold]] inline std::string layer_name(std::string_view block, std::string_view name,
                                            int ordinal) {
  return block.empty() ? layer_name(name, ordinal)
                       : format_text("{}/{}", block, layer_name(name, ordinal));
}
[[gnu::cold]] inline std::string layer_name(const Node& n) {
  return layer_name(n.block, n.name, n.ordinal);
}
[[gnu::cold]] inline std::string layer_name(const NamedParameter& p) {
  return layer_name(p.block, p.layer, p.ordinal);
}

/// Whether a parameter belongs to a layer.
constexpr bool is_of(const NamedParameter& p, const Node& n) {
  return p.ordinal == n.ordinal && p.layer == n.name && p.block == n.block;
}

/// The first error in a model.
struct Failure {
  enum Kind {
    none,
    layer_rejects,
    parameters_differ,
    branches_differ,
    branches_do_not_join,
    block_changes_shape,
    input_differs,
    equal_names
  };
  Kind kind = none;
  int position = 0;  ///< index of the layer among the leaves
  Shape first{}, second{};
  std::size_t weights = 0, state = 0;  ///< totals of the layer's parameters(), if they differ
};

/// Counts nodes, parameters and named blocks by the same walk as Graph, to size the arrays of Graph
/// and BlockPaths.
struct NodeCount {
  int nodes = 0, parameters = 0, position = 0;
  std::size_t blocks = 0;
  std::size_t path = 0, paths = 0;  ///< characters of the current path, and of all
  template <class L>
  constexpr ValueId add(ValueId v) {
    if constexpr (NamedBlock<L>) {
      const std::size_t outer = path;
      path += BlockPaths<0, 0, 0>::length_of(L::name);
      paths += path;
      ++blocks;
      L::append(*this, v);
      path = outer;
      return v;
    } else if constexpr (Composite<L>) {
      return L::append(*this, v);
    } else {
      nodes += HasActivation<L> ? 2 : 1;
      parameters += static_cast<int>(L::parameters(shape(1, 1, 1)).size());
      return v;
    }
  }
  template <class Rule>
  constexpr ValueId join(ValueId a, ValueId, Failure::Kind, int = 2) {
    ++nodes;
    return a;
  }
  constexpr void keeps_shape(ValueId, ValueId) {}
  constexpr int enter_segment() { return -1; }
  constexpr void leave_segment(int) {}
};

/// The graph under construction. `add` is called once per layer, in the order that `Sequential`,
/// `Residual`, `Parallel`, `Repeat` and `Recompute` define.
template <class Ops, std::size_t Nodes, std::size_t Parameters, std::size_t Blocks = 0>
struct Graph {
  using ops = Ops;
  std::array<Node, Nodes + 1> node{};
  Table<ValueId, Shape, Nodes + 1> value{};
  std::array<NamedParameter, Parameters + 1> parameter{};
  OpPool<Nodes + 1, Ops> pool{};
  int nodes = 0, parameters = 0, position = 0;
  ValueId output{};
  int segment = -1, segments = 0;      ///< of Recompute: the current block, and the number of
                                       ///< blocks
  std::size_t weights = 0, state = 0;  ///< elements of the flat buffers
  double flops = 0;                    ///< forward pass, per example
  Failure failure{};
  NameNumbers<Nodes + Blocks> numbers{};
  std::span<const std::string_view> block_paths{};  ///< of BlockPaths
  std::size_t blocks = 0;                           ///< number of named blocks entered
  std::string_view block{};                         ///< the current one

  template <class L>
  constexpr ValueId add(ValueId v) {
    if (failure.kind != Failure::none) return v;
    if constexpr (Composite<L>) {
      if constexpr (requires { L::input_shape; }) {
        if (value[v] != L::input_shape) {
          failure = {Failure::input_differs, position, value[v], L::input_shape};
          return v;
        }
      }
      if constexpr (NamedBlock<L>) {
        numbers.next(L::name);
        const std::string_view outer = std::exchange(block, block_paths[blocks++]);
        const std::size_t outer_names = numbers.enter();
        const ValueId out = L::append(*this, v);
        numbers.leave(outer_names);
        block = outer;
        return out;
      } else {
        return L::append(*this, v);
      }
    } else {
      const Shape in = value[v];
      if (!L::accepts(in)) {
        failure = {Failure::layer_rejects, position, in};
        return v;
      }
      const auto op = L::op(in);
      Node& n = push(op, v, ValueId::none, L::name, numbers.next(L::name));
      n.class_name = class_name<L>();
      for (const Parameter& p : L::parameters(in)) {
        if (!p.present) continue;
        NamedParameter& q = parameter[static_cast<std::size_t>(parameters++)];
        static_cast<Parameter&>(q) = p;
        q.layer = n.name;
        q.block = n.block;
        q.ordinal = n.ordinal;
        q.offset = p.trainable ? weights : state;
        (p.trainable ? weights : state) += p.shape.size();
      }
      n.w_count = weights - n.w;
      n.state_count = state - n.state;
      if (n.w_count != weights_of(op) || n.state_count != state_of(op)) {
        failure = {Failure::parameters_differ, position, in, {}, n.w_count, n.state_count};
        return v;
      }
      ++position;
      if constexpr (HasActivation<L>) {
        using A = typename L::activation;
        Node& a = push(A::op(op.out()), n.out, ValueId::none, L::name, n.ordinal);
        a.class_name = class_name<A>();
        a.is_activation = true;
        return a.out;
      }
      return n.out;
    }
  }

  /// Merges two values, for Residual and Parallel; records `fault` if their shapes do not fit.
  template <class Rule>
  constexpr ValueId join(ValueId a, ValueId b, Failure::Kind fault, int branches = 2) {
    if (failure.kind != Failure::none) return a;
    const Shape x = value[a], y = value[b];
    if (!Rule::accepts(x, y)) {
      failure = {fault, position, x, y};
      return a;
    }
    const auto op = [&] {
      if constexpr (requires { Rule::op(x, y, branches); })
        return Rule::op(x, y, branches);
      else
        return Rule::op(x, y);
    }();
    Node& n = push(op, a, b, Rule::name, numbers.next(Rule::name));
    n.class_name = class_name<Rule>();
    return n.out;
  }

  /// For Repeat: records an error unless the block's output has the shape of its input.
  constexpr void keeps_shape(ValueId before, ValueId after) {
    const Shape a = value[before], b = value[after];
    if (failure.kind == Failure::none && a != b)
      failure = {Failure::block_changes_shape, position, a, b};
  }

  /// For Recompute: begins a block, unless inside one, since nested blocks belong to the outermost.
  /// Returns the argument of leave_segment.
  constexpr int enter_segment() {
    const int outer = segment;
    if (outer < 0) segment = segments++;
    return outer;
  }
  constexpr void leave_segment(int outer) { segment = outer; }

 private:
  template <class TheOp>
  constexpr Node& push(const TheOp& op, ValueId in0, ValueId in1, std::string_view name,
                       int ordinal) {
    Node& n = node[static_cast<std::size_t>(nodes++)];
    n.type = index_in<TheOp>(Ops{});
    n.op = pool.template of<TheOp>().add(op);
    n.in0 = in0;
    n.in1 = in1;
    n.out = ValueId{nodes};  // value 0 is the batch
    n.w = weights;
    n.state = state;
    n.segment = segment;
    n.name = name;
    n.block = block;
    n.ordinal = ordinal;
    value[n.out] = op.out();
    if constexpr (requires { op.flops(); }) n.flops = op.flops();
    flops += n.flops;
    return n;
  }
};

/// Op types of a layer or block.
template <class L>
struct OpsOf {
  using type = List<>;
};
template <Composite L>
struct OpsOf<L> {
  using type = typename L::ops;
};
template <Layer L>
struct OpsOf<L> {
  using type = List<decltype(L::op(Shape{}))>;
};
template <Layer L>
  requires HasActivation<L>
struct OpsOf<L> {
  using type = List<decltype(L::op(Shape{})), decltype(L::activation::op(Shape{}))>;
};

/// The graph of a body on an input. One constant per stage, since clang's limit of steps applies to
/// each.
template <class Body, Shape In>
struct Built {
  static constexpr NodeCount count = [] {
    NodeCount c;
    if constexpr (Body::layers_ok) c.template add<Body>(ValueId::batch);
    return c;
  }();
  static constexpr auto paths = [] {
    if constexpr (count.blocks == 0) {
      return BlockPaths<0, 0, 0>{};
    } else {
      BlockPaths<count.blocks, count.paths, static_cast<std::size_t>(count.nodes) + count.blocks> p;
      p.template add<Body>(ValueId::batch);
      p.finish();
      return p;
    }
  }();
  static constexpr std::array<std::string_view, count.blocks> block_paths = paths.views();
  static constexpr auto graph = [] {
    Graph<typename Body::ops, static_cast<std::size_t>(count.nodes),
          static_cast<std::size_t>(count.parameters), count.blocks>
        g;
    g.block_paths = block_paths;
    if (paths.equal_names) g.failure.kind = Failure::equal_names;
    g.value[ValueId::batch] = In;
    if constexpr (Body::layers_ok) g.output = g.template add<Body>(ValueId::batch);
    return g;
  }();
  static constexpr Failure failure = graph.failure;
  static constexpr bool valid = Body::layers_ok && failure.kind == Failure::none;
};

}  // namespace lockstep::detail
