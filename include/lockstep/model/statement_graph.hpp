/// \file
/// Networks as graphs: a list of statements, each of which names a value. Invariant: the values of a
/// batch are one row per example, in which the inputs follow each other, and so are those of the
/// output.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>

#include "lockstep/core/row_part.hpp"
#include "lockstep/layers/merging/concatenate.hpp"
#include "lockstep/layers/reshaping/flatten.hpp"
#include "lockstep/layers/reshaping/row_slice.hpp"
#include "lockstep/model/statements.hpp"

namespace lockstep {

namespace detail {

/// The first error in a list of statements.
struct GraphFault {
  enum Kind {
    none,
    explained,  // a statement has an error of its own
    name_twice,
    unknown_name,
    used_before,
    no_input,
    no_output,
    nobody_reads,
    no_rule,
    too_many_operands
  };
  Kind kind = none;
  std::size_t statement = 0;
};

/// The values that the operands of all statements are, one after the other. Most statements have one
/// value.
template <std::size_t Operands>
struct ResolvedNames {
  GraphFault fault{};
  std::array<std::size_t, Operands + 1> value{};
};

// The errors, each instantiated only where it occurs.
template <GraphFault::Kind Kind, class Statement>
struct GraphError {
  static_assert(Kind != GraphFault::name_twice,
                "lockstep::Graph: 'Statement' has the name of a statement before it; rename one");
  static_assert(
      Kind != GraphFault::unknown_name,
      "lockstep::Graph: 'Statement' reads a name that no statement has; write the name of "
      "an In, Let or Out in its From");
  static_assert(
      Kind != GraphFault::used_before,
      "lockstep::Graph: 'Statement' reads its own name or that of a statement after it; a "
      "graph has no cycles: put each statement after those that it reads");
  static_assert(Kind != GraphFault::no_input,
                "lockstep::Graph: there is no input; begin with In<name, extents...>");
  static_assert(
      Kind != GraphFault::no_output,
      "lockstep::Graph: there is no output; end with Out<name, From<names...>, layers...>");
  static_assert(Kind != GraphFault::nobody_reads,
                "lockstep::Graph: no statement reads 'Statement'; name it in a From, or remove it");
  static_assert(
      Kind != GraphFault::no_rule,
      "lockstep::Graph: 'Statement' reads several values without a rule that merges them; write it after From: Let<name, From<names...>, ls::Concatenate, layers...>");
  static_assert(
      Kind != GraphFault::too_many_operands,
      "lockstep::Graph: 'Statement' reads another number of values than its layer accepts; "
      "Subtract and Dot merge two");
};
template <GraphFault Fault, class... Statements>
struct GraphErrorOf : GraphError<Fault.kind, At<Fault.statement, Statements..., void>> {};
template <GraphFault Fault, class... Statements>
  requires(Fault.kind <= GraphFault::explained)
struct GraphErrorOf<Fault, Statements...> {};
template <class S>
concept IsStatement = requires { S::is_output; };
template <class... Statements>
struct CheckStatements {
  static_assert(
      (IsStatement<Statements> && ...),
      "lockstep::Graph: an argument is not a statement; write layers into a Let or Out: Let<name, From<names...>, layers...>");
};

/// Finds the values of all names, and the first error. By hashes, since each name is compared to all
/// others.
template <class... Statements>
constexpr auto resolve_names() {
  constexpr std::size_t count = sizeof...(Statements);
  constexpr std::size_t values = (std::size_t{0} + ... + Statements::values);
  ResolvedNames<(std::size_t{0} + ... + Statements::from::count)> result;
  const std::array<bool, count + 1> is_input{Statements::is_input..., false},
      is_output{Statements::is_output..., false}, is_merged{Statements::is_merged..., false},
      fits_rule{Statements::fits_rule..., false};
  std::array<std::uint64_t, values + 1> name{};
  std::array<std::size_t, values + 1> of{};  // the statement of each value
  std::array<bool, count + 1> is_read{};
  const auto fail = [&](GraphFault::Kind kind, std::size_t statement) {
    if (result.fault.kind == GraphFault::none) result.fault = {kind, statement};
  };
  if (!(Statements::is_sound && ...)) fail(GraphFault::explained, 0);
  std::size_t i = 0, v = 0;
  const auto add_names = [&](std::span<const std::uint64_t> hashes) {
    for (const std::uint64_t hash : hashes) {
      for (std::size_t k = 0; k < v; ++k)
        if (name[k] == hash) fail(GraphFault::name_twice, i);
      of[v] = i;
      name[v++] = hash;
    }
    ++i;
    return true;
  };
  std::size_t next = 0;
  const auto find = [&](std::span<const std::string_view> operands) {
    for (const std::string_view operand : operands) {
      const std::uint64_t wanted = hash_name(operand);
      std::size_t k = 0;
      while (k < values && name[k] != wanted) ++k;
      if (k == values)
        fail(GraphFault::unknown_name, i);
      else if (of[k] >= i)
        fail(GraphFault::used_before, i);
      else
        is_read[of[k]] = true;
      result.value[next++] = k;
    }
    if (!is_merged[i]) fail(GraphFault::no_rule, i);
    if (!fits_rule[i]) fail(GraphFault::too_many_operands, i);
    ++i;
    return true;
  };
  bool all = true;
  for (const bool done : std::initializer_list<bool>{true, add_names(Statements::hashes)...})
    all = all && done;
  i = 0;
  for (const bool done : std::initializer_list<bool>{true, find(Statements::from::names)...})
    all = all && done;
  bool has_input = false, has_output = false;
  for (std::size_t k = 0; k < count; ++k) {
    has_input = has_input || is_input[k];
    has_output = has_output || is_output[k];
  }
  if (!has_input) fail(GraphFault::no_input, 0);
  if (!has_output) fail(GraphFault::no_output, 0);
  for (std::size_t k = 0; k < count; ++k)
    if (!is_output[k] && !is_read[k]) fail(GraphFault::nobody_reads, k);
  return result;
}

/// The parts of a row, from their names and shapes.
template <std::size_t Count>
struct RowParts {
  std::array<RowPart, Count> part{};
  std::size_t count = 0, size = 0;  ///< elements of the row

  constexpr void add(std::string_view name, const Shape& shape) {
    part[count++] = {name, shape, size};
    size += shape.size();
  }
};

/// The statements of a Graph, as a block.
template <class... Statements>
struct GraphBody {
  using is_composite = void;
  using children = typename Concat<typename Statements::leaves...>::type;
  static constexpr std::size_t input_count =
      (std::size_t{0} + ... + (Statements::is_input ? 1 : 0));
  static constexpr std::size_t output_count =
      (std::size_t{0} + ... + (Statements::is_output ? 1 : 0));
  using ops = Union<typename Concat<typename Statements::ops...>::type,
                    std::conditional_t<(input_count > 1), List<RowSliceOp>, List<>>,
                    std::conditional_t<(output_count > 1), List<ViewOp, ConcatenateOp>, List<>>>;
  static constexpr auto names = resolve_names<Statements...>();
  static constexpr bool layers_ok =
      names.fault.kind == GraphFault::none && (Statements::layers_ok && ...);
  static constexpr auto inputs_row = [] {
    RowParts<input_count> row;
    const auto add = [&]<class S>() {
      if constexpr (S::is_input) row.add(S::name, S::shape);
      return true;
    };
    for (const bool done :
         std::initializer_list<bool>{true, add.template operator()<Statements>()...})
      static_cast<void>(done);
    return row;
  }();

  static constexpr std::array<std::string_view, output_count> output_names = [] {
    std::array<std::string_view, output_count> result{};
    std::size_t i = 0, k = 0;
    const std::array<std::string_view, sizeof...(Statements)> all{Statements::name...};
    for (const bool is_output : std::initializer_list<bool>{Statements::is_output...}) {
      if (is_output) result[k++] = all[i];
      ++i;
    }
    return result;
  }();

  /// The values of the outputs, from those of the inputs.
  template <class Walk>
  static constexpr std::array<ValueId, output_count> append_all(
      Walk& walk, const std::array<ValueId, input_count>& input) {
    State<Walk> state{walk, input};
    for (const std::size_t values :
         std::initializer_list<std::size_t>{0, state.template add<Statements>()...})
      state.values = values;
    return state.output;
  }
  /// The row of the outputs; the output if there is one.
  template <class Walk>
  static constexpr ValueId join_outputs(Walk& walk, std::array<ValueId, output_count> output) {
    if constexpr (output_count > 1) {
      for (std::size_t i = 0; i < output_count; ++i) output[i] = walk.add_output(output[i], i);
      return join_all<Concatenate>(walk, output, Failure::operands_do_not_join);
    } else {
      return output[0];
    }
  }

  /// As a layer of a block around it: its input is a row if there are several, and so is its output.
  template <class Walk>
  static constexpr ValueId append(Walk& walk, ValueId v) {
    std::array<ValueId, input_count> input{};
    if constexpr (input_count == 1)
      input[0] = v;
    else
      for (std::size_t i = 0; i < input_count; ++i) input[i] = walk.part(v, inputs_row.part[i]);
    return join_outputs(walk, append_all(walk, input));
  }

 private:
  /// The values of the statements that a walk has visited.
  template <class Walk>
  struct State {
    Walk& walk;
    const std::array<ValueId, input_count>& input;
    std::array<ValueId, output_count> output{};
    std::array<ValueId, (std::size_t{0} + ... + Statements::values)> value{};
    std::size_t values = 0, operands = 0, inputs = 0, outputs = 0;

    /// Returns the number of values so far.
    template <class S>
    constexpr std::size_t add() {
      if constexpr (S::is_input) {
        value[values] = input[inputs++];
      } else {
        std::array<ValueId, S::from::count> from{};
        for (ValueId& operand : from) operand = value[names.value[operands++]];
        const auto result = S::append(walk, from);
        for (std::size_t i = 0; i < S::values; ++i) value[values + i] = result[i];
        if constexpr (S::is_output) output[outputs++] = result[0];
      }
      return values += S::values;
    }
  };
};

}  // namespace detail

/// A network with several inputs and outputs, or with values that several layers read: a list of
/// statements, in an order in which each reads what others before it have named. Compare Keras'
/// functional interface.
///
/// - `In<"image", 28, 28, 1>`: an input, `In<"words", ls::Integers<64>>` one of whole numbers.
/// - `Let<"a", From<"image">, layers...>`: a value. With several names in From, a rule that merges
///   them comes first.
/// - `Out<"digit", From<"a">, layers...>`: an output.
///
/// A network reads one row per example, in which the inputs follow each other, and writes one row with
/// the outputs, flattened; `inputs` and `outputs` are their parts. With one input the row is that
/// input, with its shape, and likewise with one output. A graph may be a block of another network.
/// \code
///   struct TwoTowers : ls::Graph<
///       ls::In<"image", 28, 28, 1>, ls::In<"words", ls::Integers<64>>,
///       ls::Let<"a", ls::From<"image">, ls::Conv2D<32, 3, ls::relu>, ls::Flatten>,
///       ls::Let<"b", ls::From<"words">, ls::Embedding<20'000, 32>, ls::GlobalAveragePooling1D>,
///       ls::Let<"both", ls::From<"a", "b">, ls::Concatenate, ls::Dense<64, ls::relu>>,
///       ls::Out<"digit", ls::From<"both">, ls::Dense<10>>,
///       ls::Out<"even", ls::From<"both">, ls::Dense<1>>> {};
///   static_assert(TwoTowers::input_shape == ls::shape(784 + 64));
///   static_assert(TwoTowers::output_shape == ls::shape(10 + 1));
/// \endcode
template <class... Statements>
struct Graph : detail::GraphBody<Statements...> {
 private:
  using body = detail::GraphBody<Statements...>;
  static constexpr Shape shape_of_input() {
    if constexpr (body::input_count == 1)
      return body::inputs_row.part[0].shape;
    else
      return shape(body::inputs_row.size);
  }
  using built = detail::Built<body, shape_of_input()>;

 public:
  static constexpr auto& graph = built::graph;  ///< nodes, shapes, names, parameters
  static constexpr bool valid = built::valid;   ///< false if an error was reported
  static constexpr Shape input_shape = shape_of_input();
  static constexpr Shape output_shape = graph.value[graph.output];
  static constexpr std::size_t trainable_count = graph.weights;
  static constexpr std::size_t parameter_count = graph.weights + graph.state;
  /// The parts of the input row and of the output row, in the order of In and Out.
  static constexpr std::array<RowPart, body::input_count> inputs = body::inputs_row.part;
  static constexpr std::array<RowPart, body::output_count> outputs = [] {
    detail::RowParts<body::output_count> row;
    for (std::size_t i = 0; i < body::output_count; ++i)
      row.add(body::output_names[i],
              body::output_count == 1 ? output_shape : graph.value[graph.parts[i]]);
    return row.part;
  }();

  static_assert(sizeof(detail::GraphErrorOf<body::names.fault, Statements...>) > 0);
  static_assert(sizeof(detail::Verdict<built, body>) > 0);
};

/// An invalid one, whose members do nothing.
template <class... Arguments>
  requires(!(detail::IsStatement<Arguments> && ...))
struct Graph<Arguments...> : Sequential<Input<1>> {
  static constexpr bool valid = false;

  static_assert(sizeof(detail::CheckStatements<Arguments...>) > 0);
};

}  // namespace lockstep
