/// \file
/// A model as one flat constexpr value: nodes, shapes, names, parameters and FLOPs, independent of
/// the device. Invariants: nodes are in the order of the forward pass; value 0 is the input;
/// construction is near-linear, since clang limits a constant expression to a million steps.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "lockstep/concepts/layer.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/row_part.hpp"
#include "lockstep/core/type_list.hpp"
#include "lockstep/layers/mask.hpp"
#include "lockstep/layers/merging/concatenate.hpp"
#include "lockstep/layers/reshaping/flatten.hpp"
#include "lockstep/layers/reshaping/row_slice.hpp"
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
    return append(value);
  }
  /// Adds `value` even if it is known.
  constexpr std::size_t append(const TheOp& value) {
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

/// An op that computes each vector along the last axis alone. `of_vector()`: the op of one of them.
template <class TheOp>
concept OfVectors = requires(const TheOp& op) {
  { op.of_vector() } -> std::same_as<TheOp>;
};

/// A layer of the model. Its operands are a range of an array that all nodes share, so that there
/// may be any number of them:
/// \code
///   node      dense     dense_1   add
///   operands  0         0         1, 2       values
///             [0, 1)    [1, 2)    [2, 4)     ranges
/// \endcode
struct Node {
  int type = 0;        ///< index of the op's type in Graph::ops
  std::size_t op = 0;  ///< index of the op's value in its OpBin
  std::size_t operands_begin = 0, operands_end = 0;
  ValueId out{};
  std::size_t w = 0, w_count = 0;  ///< range in the flat weights, or state if frozen
  std::size_t state = 0, state_count = 0;
  std::string_view name, class_name;  ///< "conv2d", "Conv2D"
  std::string_view block;             ///< path of its named blocks, "decoder"; empty outside
  int ordinal = 0;                    ///< 0 for conv2d, 1 for conv2d_1
  bool is_activation = false;         ///< the activation of the layer before, whose name it shares
  int segment = -1;                   ///< block of Recompute; -1: none
  int first = -1;                     ///< the node whose weights it uses, of this layer or another
  int users = 1;                      ///< in that node: the number of nodes that use its weights
  int call = 0;                       ///< 0 for the layer's first call
  int first_call = -1;                ///< of a further call: the node of the first one
  int further_calls = 0;              ///< in that node: their number
  int parameters_begin = 0;           ///< index of its first parameter
  bool reads_row = false;             ///< reads its part of the network's input row itself
  bool is_mask = false;               ///< of padded steps
  bool is_frozen = false;             ///< has parameters, all of which are in the flat state
  bool in_blocks = false;             ///< the last layer, in InBlocks
  double flops = 0;                   ///< forward pass, per example

  constexpr std::size_t operands() const { return operands_end - operands_begin; }
  /// The values that the layer reads, of all in the array of its graph or plan.
  constexpr std::span<const ValueId> operands_of(std::span<const ValueId> all) const {
    return all.subspan(operands_begin, operands());
  }
  /// Whether the layer has weights that training changes.
  constexpr bool trains() const { return w_count > 0 && !is_frozen; }
};

/// Whether other nodes use the weights, too.
constexpr bool has_several_calls(const Node& n) { return n.first >= 0 || n.users > 1; }

/// A parameter of the model.
struct NamedParameter : Parameter {
  std::string_view layer, block;
  int ordinal = 0;
  std::size_t offset = 0;  ///< in the flat weights, or in the flat state if not trainable
  bool is_frozen = false;  ///< trainable, if the layer were not frozen
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
    equal_names,
    operands_do_not_join,
    shared_types_differ,
    shared_parameters_differ,
    cannot_tie,
    frozen_later,
    in_blocks_not_last,
    not_in_blocks
  };
  Kind kind = none;
  int position = 0;  ///< index of the layer among the leaves
  Shape first{}, second{};
  /// If they differ: totals of the layer's parameters(), and what its op expects.
  std::size_t weights = 0, state = 0, op_weights = 0, op_state = 0;
};

/// A result of a layer, with a name for its node.
constexpr RowPart named_result(RowPart part) {
  if (part.name.empty()) part.name = "result";
  return part;
}

/// Counts nodes, their operands, parameters and named blocks by the same walk as Graph, to size the
/// arrays of Graph and BlockPaths.
struct NodeCount {
  int nodes = 0, parameters = 0, position = 0;
  std::size_t operands = 0;
  std::size_t blocks = 0, shared = 0, outputs = 0, masks = 0;
  std::size_t path = 0, paths = 0;  ///< characters of the current path, and of all
  template <class L>
  constexpr ValueId add(ValueId v) {
    if constexpr (NamedBlock<L>) {
      return within<L>([&] { return L::append(*this, v); });
    } else if constexpr (Composite<L>) {
      return L::append(*this, v);
    } else {
      return add_layer<L>(Failure::layer_rejects, v);
    }
  }
  template <class L, class... Operands>
  constexpr ValueId add_layer(Failure::Kind, ValueId v, Operands... more) {
    constexpr int own = HasActivation<L> ? 2 : 1;
    nodes += own;
    operands += own + sizeof...(more) + (ReadsMask<L> ? 1 : ReadsMasks<L> ? 2 : 0);
    if constexpr (MakesMask<L>) add_mask(1);
    if constexpr (ReadsMasks<L>) {
      if (sizeof...(more) > 1 && masks > 0) add_mask(2);
    } else if constexpr (sizeof...(more) > 0 && PassesMask<L>)
      for (std::size_t i = 0; i < sizeof...(more) && masks > 0; ++i) add_mask(2);
    if constexpr (JoinsSteps<L>)  // that of another value without a mask, and theirs
      for (int i = 0; i < 2 && masks > 0; ++i) add_mask(1);
    if constexpr (ReadsEachMask<L>)  // of each operand, which may have none
      for (std::size_t i = 0; i < 1 + sizeof...(more) && masks > 0; ++i, ++operands) add_mask(1);
    const auto any = [](auto) { return shape(1, 1, 1); };
    if constexpr (requires { L::parameters(any(v), any(more)...); })
      parameters += static_cast<int>(L::parameters(any(v), any(more)...).size());
    return v;
  }
  constexpr void add_mask(std::size_t reads) {
    ++masks;
    ++nodes;
    operands += reads;
  }
  template <class L, class F>
  constexpr auto within(const F& append) {
    const std::size_t outer = path;
    path += BlockPaths<0, 0, 0>::length_of(L::name);
    paths += path;
    ++blocks;
    const auto out = append();
    path = outer;
    return out;
  }
  template <class S>
  constexpr ValueId share(ValueId v) {
    ++shared;
    return add<typename S::layer>(v);
  }
  template <class T>
  constexpr ValueId tie(ValueId v) {
    ++nodes;
    ++operands;
    return v;
  }
  constexpr ValueId part(ValueId v, const RowPart&) {
    ++nodes;
    ++operands;
    return v;
  }
  template <class L, std::size_t Count>
  constexpr auto results(ValueId row) {
    constexpr std::size_t parts = results_of<L, Count>;
    nodes += static_cast<int>(parts);
    operands += parts;
    std::array<ValueId, parts> all{};
    for (ValueId& v : all) v = row;
    return all;
  }
  constexpr ValueId add_output(ValueId v, std::size_t) {
    ++outputs;
    ++nodes;
    ++operands;
    return v;
  }
  constexpr void receives(ValueId, const Shape&) {}
  constexpr void keeps_shape(ValueId, ValueId) {}
  constexpr int enter_segment() { return -1; }
  constexpr void leave_segment(int) {}
};

/// A layer or block of Shared, at its first call.
struct SharedLayer {
  std::uint64_t key = 0;   ///< hash
  std::uint64_t type = 0;  ///< type_id
  int first = 0;           ///< its first node
};

/// The graph under construction. `add` is called once per layer, and `add_layer` for one with several
/// operands, in the order that `Sequential`, `Residual`, `Parallel`, `Repeat`, `Recompute`, `Frozen`,
/// `Graph` and `Shared` define; then `finish`. `Calls`: calls of shared layers, each of which is a node or several. `Outputs`: at least
/// the number of outputs, if there are several.
/// \code
///   weights   | of all layers that are not frozen |
///   state     | theirs                            | weights, state of each frozen layer |
///             0                                   trained_state                         state
/// \endcode
template <class Ops, std::size_t Nodes, std::size_t Operands, std::size_t Parameters,
          std::size_t Blocks = 0, std::size_t Calls = 0, std::size_t Outputs = 0,
          std::size_t Masks = 0>
struct Graph {
  using ops = Ops;
  std::array<Node, Nodes + 1> node{};
  std::array<ValueId, Operands + 1> operand{};  ///< of all nodes
  std::size_t operands = 0;                     ///< number of `operand`
  Table<ValueId, Shape, Nodes + 1> value{};
  std::array<NamedParameter, Parameters + 1> parameter{};
  OpPool<Nodes + 1, Ops> pool{};
  int nodes = 0, parameters = 0, position = 0;
  ValueId output{};
  int segment = -1, segments = 0;      ///< of Recompute: the current block, and the number of
                                       ///< blocks
  bool frozen = false;                 ///< within a block of Frozen
  std::size_t weights = 0, state = 0;  ///< elements of the flat buffers
  std::size_t trained_state = 0;       ///< elements of the state that training may change
  double flops = 0;                    ///< forward pass, per example
  Failure failure{};
  NameNumbers<Nodes + Blocks> numbers{};
  std::span<const std::string_view> block_paths{};  ///< of BlockPaths
  std::size_t blocks = 0;                           ///< number of named blocks entered
  std::string_view block{};                         ///< the current one
  std::array<ValueId, Outputs + 1> parts{};         ///< the outputs, if there are several
  std::array<SharedLayer, Calls + 1> known{};
  int shared_layers = 0;       ///< the number of `known`
  int repeats = -1;            ///< in a further call: the node of the first call that comes next
  int further_calls = 0;       ///< nodes that use the weights of others
  int blocked = -1;            ///< the node in InBlocks; -1: none
  std::size_t block_rows = 0;  ///< of InBlocks; 0: the plan decides
  /// The mask of each value of steps; the batch stands for none.
  Table<ValueId, ValueId, (Masks > 0 ? Nodes : 0) + 1> mask_of{};

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
        return within<L>([&] { return L::append(*this, v); });
      } else {
        return L::append(*this, v);
      }
    } else {
      if constexpr (Masks > 0 && ReadsMask<L>) {
        if (is_computed(mask_of[v])) return add_layer<L>(Failure::layer_rejects, v, mask_of[v]);
      }
      return add_layer<L>(Failure::layer_rejects, v);
    }
  }

  /// Adds a layer that reads v, and `more` if it has several operands; records `fault` if it does not
  /// accept their shapes.
  template <class L, class... Operand>
  constexpr ValueId add_layer(Failure::Kind fault, ValueId v, Operand... more) {
    if (failure.kind != Failure::none) return v;
    if (!L::accepts(value[v], value[more]...)) {
      failure = {fault, position, value[v]};
      if constexpr (sizeof...(more) > 0) {
        failure.second = value[std::array{more...}[0]];
        if constexpr (LayerOf<L, 2>)  // the first one that does not fit to v
          for (const ValueId other : {more...})
            if (L::accepts(value[v], failure.second)) failure.second = value[other];
      }
      return v;
    }
    auto op = L::op(value[v], value[more]...);
    bool reads_row = false;
    if constexpr (has_parts && sizeof...(more) == 0 && requires { op.of_row(0, 0); })
      reads_row = read_row(op, v);
    [[maybe_unused]] ValueId of_first{}, of_others{};  // masks
    if constexpr (Masks > 0 && ReadsMasks<L>) {
      constexpr std::size_t operands_before = 1 + sizeof...(more);
      of_first = mask_of[v];
      of_others = both_masks(op, std::array{v, more...});
      const bool differ = is_computed(of_first) && of_first != of_others;
      op.read_masks(is_computed(of_first) ? operands_before : 0,
                    is_computed(of_others) ? operands_before + (differ ? 1 : 0) : 0);
    }
    Node& n = push_layer<L>(op, v, more...);
    if constexpr (Masks > 0 && ReadsMasks<L>) {
      if (is_computed(of_first)) operand[operands++] = of_first;
      if (is_computed(of_others) && of_others != of_first) operand[operands++] = of_others;
      n.operands_end = operands;
    }
    n.class_name = class_name<L>();
    n.reads_row = reads_row;
    const std::size_t weights_read = weights_of(op), state_read = state_of(op);
    if constexpr (requires { L::parameters(value[v], value[more]...); })
      add_parameters(n, weights_read, state_read, L::parameters(value[v], value[more]...));
    else
      add_parameters(n, weights_read, state_read, {});
    ++position;
    const ValueId out = add_activation<L>(n, op.out());
    if constexpr (Masks > 0) {
      if constexpr (MakesMask<L>)
        mask_of[out] = add_mask(L::mask(value[v]), {v});
      else if constexpr (PassesMask<L>)
        mask_of[out] = ReadsMask<L> || ReadsMasks<L> ? mask_of[v] : merged_mask<L>(v, more...);
    }
    return out;
  }

  /// Runs `append` within the named block L.
  template <class L, class F>
  constexpr auto within(const F& append) {
    if constexpr (Calls > 0) {
      if (repeats >= 0) return append();  // names are those of the first call
    }
    numbers.next(L::name);
    const std::string_view outer = std::exchange(block, block_paths[blocks++]);
    const std::size_t outer_names = numbers.enter();
    const auto out = append();
    numbers.leave(outer_names);
    block = outer;
    return out;
  }

  /// For Shared: the first call of a key adds its layers. A further one adds nodes that use the
  /// weights, the state and the names of those of the first.
  template <class S>
  constexpr ValueId share(ValueId v) {
    using L = typename S::layer;
    if (failure.kind != Failure::none) return v;
    for (const SharedLayer& s : std::span(known).first(static_cast<std::size_t>(shared_layers))) {
      if (s.key != S::key_hash) continue;
      if (s.type != type_id<L>) {
        failure = {Failure::shared_types_differ, position};
        return v;
      }
      if (repeats >= 0) return add<L>(v);  // within a further call of the block around it
      repeats = s.first;
      const ValueId out = add<L>(v);
      repeats = -1;
      return out;
    }
    known[static_cast<std::size_t>(shared_layers++)] = {S::key_hash, type_id<L>, nodes};
    return add<L>(v);
  }

  /// For TiedDense: a node that uses the matrix of the shared layer `T::key` in its own way.
  template <class T>
  constexpr ValueId tie(ValueId v) {
    if (failure.kind != Failure::none) return v;
    for (const SharedLayer& s : std::span(known).first(static_cast<std::size_t>(shared_layers))) {
      if (s.key != T::key_hash || s.first >= nodes) continue;
      const Node& matrix = node[static_cast<std::size_t>(s.first)];
      const NamedParameter* const p = first_parameter(matrix);
      if (p == nullptr || p->shape.size() != matrix.w_count || !T::accepts(value[v], p->shape))
        break;
      const int first = matrix.first < 0 ? s.first : matrix.first;
      Node& n = push(T::op(value[v], p->shape), {v}, T::label, next_ordinal(T::label));
      n.class_name = class_name<T>();
      if (n.first < 0) use_weights_of(n, first);
      return n.out;
    }
    failure = {Failure::cannot_tie, position, value[v]};
    return v;
  }

  /// For Graph: a part of the row v.
  constexpr ValueId part(ValueId v, const RowPart& p) {
    if (failure.kind != Failure::none) return v;
    const RowSliceOp op{value[v], p.shape, static_cast<int>(p.offset)};
    Node& n = push(op, {v}, p.name, next_ordinal(p.name));
    n.class_name = "InputLayer";
    return n.out;
  }
  /// For Graph: the results of layer L with `Count` operands, from the row that it has computed.
  template <class L, std::size_t Count>
  constexpr auto results(ValueId row) {
    std::array<ValueId, results_of<L, Count>> all{};
    if (failure.kind != Failure::none) return all;
    const Node& n = node[static_cast<std::size_t>(row) - 1];
    const auto named = [&]<std::size_t... I>(std::index_sequence<I...>) {
      return L::results(value[operand[n.operands_begin + I]]...);
    }(std::make_index_sequence<Count>{});
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = part(row, named_result(named[i]));
      if constexpr (Masks > 0 && PassesMask<L>)
        if (named[i].name.empty()) mask_of[all[i]] = mask_of[row];
    }
    return all;
  }
  /// For Graph: output `index` of several, flattened. Those of the network are the last ones.
  constexpr ValueId add_output(ValueId v, std::size_t index) {
    parts[index] = v;
    if (value[v].rank == 1) return v;
    const int leaf = position;  // Flatten is not a layer that the program names
    const ValueId row = add<Flatten>(v);
    position = leaf;
    return row;
  }
  /// For Graph as a block: records an error unless v has the shape of its input.
  constexpr void receives(ValueId v, const Shape& s) {
    if (failure.kind == Failure::none && value[v] != s)
      failure = {Failure::input_differs, position, value[v], s};
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

  /// For InBlocks: marks the last node.
  constexpr void compute_in_blocks(std::size_t rows) {
    if (failure.kind != Failure::none) return;
    Node& n = node[static_cast<std::size_t>(nodes > 0 ? nodes - 1 : 0)];
    if (blocked >= 0) failure.kind = Failure::in_blocks_not_last;
    if (nodes == 0 || !has_vectors(n.type, Ops{})) failure.kind = Failure::not_in_blocks;
    n.in_blocks = true;
    blocked = nodes - 1;
    block_rows = rows;
  }
  /// Whether the network's last layer is in InBlocks.
  constexpr bool ends_in_blocks() const { return blocked >= 0; }

  /// Places the parameters of frozen layers after the other state.
  constexpr void finish() {
    if (blocked >= 0 && failure.kind == Failure::none) {
      const Node& n = node[static_cast<std::size_t>(blocked)];
      if (blocked + 1 != nodes || n.segment >= 0 || n.out != output)
        failure.kind = Failure::in_blocks_not_last;
    }
    trained_state = state;
    state += frozen_size;
    if (frozen_size == 0) return;
    for (int i = 0, k = 0; i < nodes; ++i) {
      Node& n = node[static_cast<std::size_t>(i)];
      if (n.is_activation) continue;
      if (n.is_frozen) {
        n.w += trained_state;
        n.state += trained_state;
      }
      for (; k < parameters && is_of(parameter[static_cast<std::size_t>(k)], n); ++k)
        if (n.is_frozen) parameter[static_cast<std::size_t>(k)].offset += trained_state;
    }
  }

 private:
  /// Whether the op type of this index computes vectors one by one.
  template <class... TheOps>
  static constexpr bool has_vectors(int type, List<TheOps...>) {
    int i = 0;
    bool result = false;
    for (const bool has : std::initializer_list<bool>{OfVectors<TheOps>...})
      result = result || (i++ == type && has);
    return result;
  }
  /// Each call of a shared layer has masks of its own, or none.
  template <class TheOp>
  constexpr ValueId add_mask(const TheOp& op, std::initializer_list<ValueId> from) {
    const int call = std::exchange(repeats, -1);
    Node& n = push(op, from, "mask", numbers.next("mask"));
    n.class_name = "Mask";
    n.is_mask = true;
    repeats = call;
    return n.out;
  }
  /// The node of a layer's op, or of its form with a mask of each operand if one of them has one.
  template <class L, class TheOp, class... More>
  constexpr Node& push_layer(const TheOp& op, ValueId v, More... more) {
    if constexpr (Masks > 0 && ReadsEachMask<L>) {
      if (is_computed(mask_of[v]) || (is_computed(mask_of[more]) || ...)) {
        const std::array masks{mask_or_ones(v), mask_or_ones(more)...};
        return std::apply(
            [&](auto... m) -> Node& {
              return push(L::masked(op), {v, more..., m...}, L::name, next_ordinal(L::name));
            },
            masks);
      }
    }
    return push(op, {v, more...}, L::name, next_ordinal(L::name));
  }
  /// The mask of a value; all steps of one without a mask count.
  constexpr ValueId mask_or_ones(ValueId v) {
    constexpr float no_value = std::numeric_limits<float>::max();
    return is_computed(mask_of[v]) ? mask_of[v] : add_mask(MaskOp{value[v], no_value}, {v});
  }
  template <class L, class... More>
  constexpr ValueId merged_mask(ValueId v, More... more) {
    if constexpr (JoinsSteps<L>)
      if (L::joins_steps(value[v])) return joined_mask(v, more...);
    return either_mask(mask_of[v], mask_of[more]...);
  }
  /// The masks of values one after the other.
  template <class... More>
  constexpr ValueId joined_mask(ValueId v, More... more) {
    if (!is_computed(mask_of[v]) && !(is_computed(mask_of[more]) || ...)) return ValueId::batch;
    const std::array all{mask_or_ones(v), mask_or_ones(more)...};
    return std::apply(
        [&](auto... m) { return add_mask(merging::Concatenate<1>::op(value[m]...), {m...}); }, all);
  }
  /// The mask of values that are merged: a step is padding if it is in all of them.
  constexpr ValueId either_mask(ValueId a) { return a; }
  template <class... More>
  constexpr ValueId either_mask(ValueId a, ValueId b, More... more) {
    if (!is_computed(a) || !is_computed(b)) return ValueId::batch;
    return either_mask(a == b ? a : add_mask(MaskOp{value[a], 0, true}, {a, b}), more...);
  }

  /// The mask of the operands with a gradient after the first, or of the first one if there are none: a
  /// step is padding if it is in one of them.
  template <class TheOp, std::size_t Count>
  constexpr ValueId both_masks(const TheOp& op, const std::array<ValueId, Count>& all) {
    std::size_t last = Count - 1;
    while (last > 0 && !has_gradient(op, last)) --last;
    const ValueId a = mask_of[all[last > 1 ? 1 : last]], b = mask_of[all[last]];
    if (!is_computed(a) || a == b) return b;
    return is_computed(b) ? add_mask(MaskOp{value[a], 0, true, true}, {a, b}) : a;
  }

  static constexpr int part_type = index_in<RowSliceOp>(Ops{});
  static constexpr bool has_parts = part_type >= 0;

  constexpr int next_ordinal(std::string_view name) {
    if constexpr (Calls > 0) {
      if (repeats >= 0) return 0;  // push has that of the first call
    }
    return numbers.next(name);
  }
  template <class L>
  constexpr ValueId add_activation(const Node& n, const Shape& in) {
    if constexpr (HasActivation<L>) {
      using A = typename L::activation;
      Node& a = push(A::op(in), {n.out}, L::name, n.ordinal);
      a.class_name = class_name<A>();
      a.is_activation = true;
      return a.out;
    } else {
      return n.out;
    }
  }
  /// Lets `op` read its part of the network's input itself if v is such a part.
  template <class TheOp>
  constexpr bool read_row(TheOp& op, ValueId v) const {
    if (v == ValueId::batch) return false;
    const Node& n = node[static_cast<std::size_t>(v) - 1];
    if (n.type != part_type || operand[n.operands_begin] != ValueId::batch) return false;
    const RowSliceOp& p = pool.template of<RowSliceOp>().op[n.op];
    op = op.of_row(static_cast<int>(p.in.size()), p.offset);
    return true;
  }
  /// The first parameter of a layer that training changes, or would if it were not frozen; null if there
  /// is none.
  constexpr const NamedParameter* first_parameter(const Node& n) const {
    for (int i = n.parameters_begin; i < parameters; ++i) {
      const NamedParameter& p = parameter[static_cast<std::size_t>(i)];
      if (!is_of(p, n)) break;
      if (p.trainable || p.is_frozen) return &p;
    }
    return nullptr;
  }
  /// Gives a layer its parameters, which must be as many as its op reads. In a further call they are
  /// those of the first, whose shapes must be the same.
  constexpr void add_parameters(Node& n, std::size_t weights_read, std::size_t state_read,
                                std::span<const Parameter> all) {
    if constexpr (Calls > 0) {
      if (n.first >= 0) return compare_parameters(n, weights_read, state_read, all);
    }
    n.is_frozen = frozen && weights_read + state_read > 0;
    if (n.is_frozen) {
      n.w = frozen_size;
      n.state = frozen_size + weights_read;
    }
    std::size_t w_end = n.w, state_end = n.state;
    for (const Parameter& p : all) {
      if (!p.present) continue;
      NamedParameter& q = parameter[static_cast<std::size_t>(parameters++)];
      static_cast<Parameter&>(q) = p;
      q.layer = n.name;
      q.block = n.block;
      q.ordinal = n.ordinal;
      q.is_frozen = p.trainable && n.is_frozen;
      q.trainable = p.trainable && !n.is_frozen;
      std::size_t& end = p.trainable ? w_end : state_end;
      q.offset = end;
      end += p.shape.size();
    }
    n.w_count = w_end - n.w;
    n.state_count = state_end - n.state;
    (n.is_frozen ? frozen_size : state) = state_end;
    if (!n.is_frozen) weights = w_end;
    if (n.w_count != weights_read || n.state_count != state_read)
      failure = {.kind = Failure::parameters_differ,
                 .position = position,
                 .weights = n.w_count,
                 .state = n.state_count,
                 .op_weights = weights_read,
                 .op_state = state_read};
  }
  constexpr void compare_parameters(const Node& n, std::size_t weights_read, std::size_t state_read,
                                    std::span<const Parameter> all) {
    int i = n.parameters_begin;
    bool same = n.w_count == weights_read && n.state_count == state_read;
    for (const Parameter& p : all)
      if (p.present && same) same = p.shape == parameter[static_cast<std::size_t>(i++)].shape;
    if (same) return;
    const Node& first = node[static_cast<std::size_t>(n.first)];
    failure = {Failure::shared_parameters_differ, position, value[operand[first.operands_begin]],
               value[operand[n.operands_begin]]};
  }
  constexpr void use_weights_of(Node& n, int index) {
    Node& first = node[static_cast<std::size_t>(index)];
    if (frozen && !first.is_frozen && first.w_count + first.state_count > 0)
      failure = {Failure::frozen_later, position};
    n.w = first.w;
    n.w_count = first.w_count;
    n.state = first.state;
    n.state_count = first.state_count;
    n.is_frozen = first.is_frozen;
    n.parameters_begin = first.parameters_begin;
    n.first = index;
    ++first.users;
    ++further_calls;
  }
  std::size_t frozen_size = 0;

  template <class TheOp>
  constexpr Node& push(const TheOp& op, std::initializer_list<ValueId> from, std::string_view name,
                       int ordinal) {
    Node& n = node[static_cast<std::size_t>(nodes++)];
    n.type = index_in<TheOp>(Ops{});
    n.op = pool.template of<TheOp>().add(op);
    n.operands_begin = operands;
    for (const ValueId v : from) operand[operands++] = v;
    n.operands_end = operands;
    n.out = ValueId{nodes};  // value 0 is the batch
    n.w = weights;
    n.state = state;
    n.parameters_begin = parameters;
    n.segment = segment;
    n.name = name;
    n.block = block;
    n.ordinal = ordinal;
    value[n.out] = op.out();
    if constexpr (requires { op.flops(); }) n.flops = op.flops();
    flops += n.flops;
    if constexpr (Calls > 0) {
      if (repeats >= 0) {
        while (node[static_cast<std::size_t>(repeats)].is_mask) ++repeats;
        const Node& twin = node[static_cast<std::size_t>(repeats)];
        if (n.name != twin.name) failure = {Failure::shared_types_differ, position};
        n.block = twin.block;
        n.ordinal = twin.ordinal;
        n.first_call = twin.first_call < 0 ? repeats : twin.first_call;
        n.call = ++node[static_cast<std::size_t>(n.first_call)].further_calls;
        use_weights_of(n, twin.first < 0 ? repeats : twin.first);
        ++repeats;
      }
    }
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
template <Layer L>
  requires MakesMask<L>
struct OpsOf<L> {
  using type = List<decltype(L::op(Shape{})), MaskOp>;
};
/// Those of a layer with several operands.
template <class L, std::size_t... I>
auto ops_with(std::index_sequence<I...>) {
  using TheOp = decltype(L::op((static_cast<void>(I), Shape{})...));
  if constexpr (HasActivation<L>)
    return List<TheOp, decltype(L::activation::op(Shape{}))>{};
  else
    return List<TheOp>{};
}
template <class L, std::size_t Count>
using OpsWith = decltype(ops_with<L>(std::make_index_sequence<Count>{}));

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
      BlockPaths<count.blocks, count.paths, static_cast<std::size_t>(count.nodes) + count.blocks,
                 count.shared>
          p;
      p.template add<Body>(ValueId::batch);
      p.finish();
      return p;
    }
  }();
  static constexpr std::array<std::string_view, count.blocks> block_paths = paths.views();
  static constexpr auto graph = [] {
    Graph<typename WithMasksOf<typename Body::ops>::type, static_cast<std::size_t>(count.nodes),
          count.operands, static_cast<std::size_t>(count.parameters), count.blocks, count.shared,
          count.outputs, count.masks>
        g;
    g.block_paths = block_paths;
    if (paths.equal_names) g.failure.kind = Failure::equal_names;
    g.value[ValueId::batch] = In;
    if constexpr (Body::layers_ok) g.output = g.template add<Body>(ValueId::batch);
    g.finish();
    return g;
  }();
  static constexpr Failure failure = graph.failure;
  static constexpr bool valid = Body::layers_ok && failure.kind == Failure::none;
};

}  // namespace lockstep::detail
