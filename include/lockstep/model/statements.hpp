/// \file
/// The statements of a Graph: inputs, named values and outputs. Invariant: a statement is an empty
/// type that knows names, not the statements that have them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/core/fixed_string.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/core/type_list.hpp"
#include "lockstep/model/join.hpp"
#include "lockstep/model/sequential.hpp"

namespace lockstep {

/// The names of the values that a statement reads.
template <FixedString... Names>
struct From {
  static constexpr std::size_t count = sizeof...(Names);
  static constexpr std::array<std::string_view, count> names{Names.view()...};

  static_assert(count > 0, "lockstep::From: there is no name; write From<names...>");
};

namespace detail {

/// The shape of an input that consists of whole numbers.
struct IntegerShape {
  Shape shape;
};

template <class... Extents>
struct CheckIn {
  static_assert(
      (std::is_same_v<Extents, int> && ...) ||
          (sizeof...(Extents) == 1 && (std::is_same_v<Extents, IntegerShape> && ...)),
      "lockstep::In: the shape is not a list of extents; write In<name, 28, 28, 1> or In<name, ls::Integers<64>>");
};

/// The shape given to In; empty if it is not one.
template <class... Extents>
constexpr Shape shape_of_in(Extents... extents) {
  if constexpr (sizeof...(Extents) <= 4 && (std::is_same_v<Extents, int> && ...))
    return shape(extents...);
  else if constexpr (sizeof...(Extents) == 1 && (std::is_same_v<Extents, IntegerShape> && ...))
    return (extents, ...).shape;
  else
    return {};
}
constexpr bool are_positive(const Shape& s) {
  for (int axis = 0; axis < s.rank; ++axis)
    if (s[axis] < 1) return false;
  return true;
}

template <bool AreOk>
struct CheckInExtents {
  static_assert(AreOk,
                "lockstep::In: extents must be at least 1 and at most four; the batch is not an "
                "extent");
};

/// A Graph that takes `Count` values, as a block.
template <class Block, std::size_t Count>
concept TakesValues = Composite<Block> && requires { requires Block::input_count == Count; };

/// The parts of a statement after its operands. `first` merges several: a rule, or a Graph with as many
/// inputs. Then come `rest`.
template <bool Joins, class... Layers>
struct StatementBody {
  using first = void;
  using rest = List<Layers...>;
};
template <class First, class... Rest>
struct StatementBody<true, First, Rest...> {
  using first = First;
  using rest = List<Rest...>;
};

template <class T>
inline constexpr bool is_from = false;
template <FixedString... Names>
inline constexpr bool is_from<From<Names...>> = true;

template <class Operands>
struct CheckFrom {
  static_assert(
      is_from<Operands>,
      "lockstep::Graph: the second argument of Let and Out names what they read; write Let<name, ls::From<names...>, layers...>");
};
/// Names no value, instead of an operand that is not a From.
struct FromNothing {
  static constexpr std::size_t count = 0;
  static constexpr std::array<std::string_view, 0> names{};
};

template <class... Layers>
constexpr bool layers_are_ok(List<Layers...>) {
  for (const bool ok : std::initializer_list<bool>{true, layer_ok<Layers>()...})
    if (!ok) return false;
  return true;
}
template <class... Layers>
auto ops_of(List<Layers...>) -> typename Concat<typename OpsOf<Layers>::type...>::type;
template <class... Layers>
constexpr bool check_layers(List<Layers...>) {
  return std::initializer_list<std::size_t>{1, sizeof(CheckLayer<Layers>)...}.size() > 0;
}
template <class Walk, class... Layers>
constexpr ValueId append_layers(Walk& walk, ValueId v, List<Layers...>) {
  for (const ValueId out : std::initializer_list<ValueId>{v, (v = walk.template add<Layers>(v))...})
    v = out;
  return v;
}
/// All layers but the last one.
template <class Walk, class Last>
constexpr ValueId append_before_last(Walk&, ValueId v, List<Last>) {
  return v;
}
template <class Walk, class First, class Next, class... Rest>
constexpr ValueId append_before_last(Walk& walk, ValueId v, List<First, Next, Rest...>) {
  return append_before_last(walk, walk.template add<First>(v), List<Next, Rest...>{});
}

/// The values of the outputs of Block, a Graph, for the values of its inputs.
template <class Block, class Walk, std::size_t Count>
constexpr auto append_block(Walk& walk, const std::array<ValueId, Count>& inputs) {
  if constexpr (requires { Block::inputs_row; })
    for (std::size_t i = 0; i < Count; ++i)
      walk.receives(inputs[i], Block::inputs_row.part[i].shape);
  if constexpr (NamedBlock<Block>)
    return walk.template within<Block>([&] { return Block::append_all(walk, inputs); });
  else
    return Block::append_all(walk, inputs);
}

/// The last of a statement's layers, and how many values it reads.
template <class First, std::size_t Count, class... Rest>
struct LastLayer {
  using type = At<sizeof...(Rest) - 1, Rest...>;
  static constexpr std::size_t count = 1;
};
template <class First, std::size_t Count>
struct LastLayer<First, Count> {
  using type = First;
  static constexpr std::size_t count = Count;
};
template <class First, std::size_t Count, class... Rest>
LastLayer<First, Count, Rest...> last_layer(List<Rest...>);

/// Number of outputs of a Graph as a block.
template <class Block>
inline constexpr std::size_t output_count_of = 1;
template <class Block>
  requires requires { Block::output_count; }
inline constexpr std::size_t output_count_of<Block> = Block::output_count;

/// A block of one input whose several outputs a Let that ends with it names.
template <class Block>
concept NamesOutputs = TakesValues<Block, 1> && requires { requires Block::names_outputs; };

/// Let and Out. A Let of a Graph with several outputs and nothing after it names all of them, and one
/// that ends with a layer with several results, or with such a Bidirectional, does.
template <bool IsOutput, FixedString Name, class Operands, class... Layers>
struct Statement {
  using from = std::conditional_t<is_from<Operands>, Operands, FromNothing>;
  static constexpr std::size_t count = from::count;
  using body = StatementBody<(count > 1), Layers...>;
  using first = typename body::first;
  static constexpr bool is_block = TakesValues<first, count>;
  using last = decltype(last_layer<first, count>(typename body::rest{}));
  static constexpr std::size_t results =
      IsOutput || is_block ? 0 : results_of<typename last::type, last::count>;
  static constexpr bool ends_with_block =
      !IsOutput && last::count == 1 && NamesOutputs<typename last::type>;
  static constexpr std::size_t values = !IsOutput && is_block && body::rest::size == 0
                                            ? output_count_of<first>
                                        : ends_with_block ? output_count_of<typename last::type>
                                        : results > 0     ? results
                                                          : 1;
  static constexpr bool is_layer = !is_block && LayerOf<first, count> && count > 1;
  using layers =
      typename Concat<std::conditional_t<is_block, List<first>, List<>>, typename body::rest>::type;
  using leaves = typename Concat<std::conditional_t<is_layer, List<first>, List<>>, layers>::type;
  using ops = typename Concat<typename OpsOfJoin<first, count>::type, decltype(ops_of(layers{})),
                              std::conditional_t<(results > 0), List<RowSliceOp>, List<>>>::type;
  static constexpr std::string_view name = Name.view();
  /// The name of one of several values within the statement's; empty: the statement's own.
  static constexpr std::string_view name_of(std::size_t i) {
    if constexpr (results > 0)
      return [i]<std::size_t... I>(std::index_sequence<I...>) {
        return last::type::results((static_cast<void>(I), Shape{})...)[i].name;
      }(std::make_index_sequence<last::count>{});
    else if constexpr (ends_with_block)
      return last::type::output_names[i];
    else if constexpr (values > 1)
      return first::output_names[i];
    else
      return {};
  }
  static constexpr std::array<std::uint64_t, values> hashes = [] {
    std::array<std::uint64_t, values> result{hash_name(name)};
    for (std::size_t i = 0; i < values; ++i)
      if (const std::string_view own = name_of(i); !own.empty())
        result[i] = hash_name(own, hash_name("/", hash_name(name)));
    return result;
  }();
  static constexpr bool is_input = false, is_output = IsOutput, is_sound = is_from<Operands>;
  static constexpr bool layers_ok = layers_are_ok(layers{});
  static constexpr bool is_merged = count == 1 || is_join<first> || is_block;
  static constexpr bool fits_rule = count == 1 || is_layer || is_block;

  template <class Walk>
  static constexpr std::array<ValueId, values> append(Walk& walk,
                                                      const std::array<ValueId, count>& operands) {
    if constexpr (values > 1 && results == 0 && !ends_with_block) {
      return append_block<first>(walk, operands);
    } else {
      ValueId v = operands[0];
      if constexpr (is_block)
        v = first::join_outputs(walk, append_block<first>(walk, operands));
      else if constexpr (count > 1)
        v = join_all<first>(walk, operands, Failure::operands_do_not_join);
      if constexpr (ends_with_block) {
        v = append_before_last(walk, v, typename body::rest{});
        return append_block<typename last::type>(walk, std::array{v});
      } else {
        v = append_layers(walk, v, typename body::rest{});
        if constexpr (results > 0)
          return walk.template results<typename last::type, last::count>(v);
        else
          return {v};
      }
    }
  }

  static_assert(sizeof(CheckFrom<Operands>) > 0);
  static_assert(check_layers(layers{}));
};

}  // namespace detail

/// The shape of an input of whole numbers, such as the words that an Embedding reads:
/// `In<"words", ls::Integers<64>>`.
template <int... Extents>
inline constexpr detail::IntegerShape Integers{// NOLINT(readability-identifier-naming): as a type
                                               detail::shape_of_in(Extents...)};

/// An input of a Graph: its name, and the shape of one example.
/// \code
///   ls::In<"image", 28, 28, 1>, ls::In<"words", ls::Integers<64>>
/// \endcode
template <FixedString Name, auto... Extents>
struct In {
  using from = detail::FromNothing;
  using layers = List<>;
  using leaves = List<>;
  using ops = List<>;
  static constexpr std::size_t values = 1;
  static constexpr std::string_view name = Name.view();
  static constexpr std::array<std::uint64_t, 1> hashes{hash_name(name)};
  static constexpr Shape shape = detail::shape_of_in(Extents...);
  static constexpr bool is_input = true, is_output = false, is_merged = true, fits_rule = true;
  static constexpr bool is_integer =
      (std::is_same_v<std::remove_cvref_t<decltype(Extents)>, detail::IntegerShape> || ...);
  static constexpr bool layers_ok = true;
  static constexpr bool has_extents = detail::are_positive(shape) && sizeof...(Extents) <= 4;
  static constexpr bool is_sound =
      has_extents &&
      ((std::is_same_v<std::remove_cvref_t<decltype(Extents)>, int> && ...) || is_integer);

  static_assert(sizeof(detail::CheckIn<std::remove_cvref_t<decltype(Extents)>...>) > 0);
  static_assert(sizeof(detail::CheckInExtents<has_extents>) > 0);
};

/// A value of a Graph: layers applied to another value, or to several that a rule merges first (Add,
/// Average, Concatenate, Dot, Maximum, Minimum, Multiply, Subtract, or a rule of the program). Without
/// layers it is a name for that. Instead of a rule there may be a Graph with as many inputs, which get
/// the values in their order; if it has several outputs and nothing comes after it, they are values
/// with names such as "pair/digit".
/// \code
///   ls::Let<"a", ls::From<"image">, ls::Conv2D<32, 3, ls::relu>, ls::Flatten>
///   ls::Let<"both", ls::From<"a", "b">, ls::Concatenate, ls::Dense<64, ls::relu>>
/// \endcode
template <FixedString Name, class From, class... Layers>
struct Let : detail::Statement<false, Name, From, Layers...> {};

/// An output of a Graph, as Let.
/// \code
///   ls::Out<"digit", ls::From<"both">, ls::Dense<10>>
/// \endcode
template <FixedString Name, class From, class... Layers>
struct Out : detail::Statement<true, Name, From, Layers...> {};

}  // namespace lockstep
