/// \file
/// The ops of a model as plain run-time values with names, for everything that shows or writes a
/// model. Invariants: the values are complete for ops that are plain aggregates; equal ops give
/// equal values with any compiler.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/concepts/layer.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/type_list.hpp"
#include "lockstep/layers/options.hpp"
#include "lockstep/training/parameters.hpp"

namespace lockstep::detail {

/// Converts to any member type of `Whole`, but not to a base of it. Used to count the members of an
/// aggregate: `Whole{any, any}` compiles if it has at least two.
template <class Whole>
struct AnyMember {
  template <class M>
    requires(!std::is_base_of_v<M, Whole>)
  operator M() const;
};
template <class T, std::size_t>
using AnyMemberOf = AnyMember<T>;

/// Limit of each_member, which has one branch per number of members.
inline constexpr std::size_t most_members = 12;

/// Whether T can be initialized from sizeof...(I) values.
template <class T, std::size_t... I>
constexpr bool is_constructible_from(std::index_sequence<I...>) {
  return requires { T{AnyMemberOf<T, I>{}...}; };
}
/// The same with the value after the first I in its own braces, which does not compile if that
/// value initializes an element of a C array member: brace elision then counts too many members.
template <class T, std::size_t... I, std::size_t... K>
constexpr bool is_constructible_braced(std::index_sequence<I...>, std::index_sequence<K...>) {
  return requires { T{AnyMemberOf<T, I>{}..., {AnyMember<T>{}}, AnyMemberOf<T, K>{}...}; };
}

/// Number of members of aggregate T; most_members + 1 if there are more.
template <class T, std::size_t N = 0>
constexpr std::size_t member_count() {
  if constexpr (N > most_members)
    return N;
  else if constexpr (is_constructible_from<T>(std::make_index_sequence<N + 1>{}))
    return member_count<T, N + 1>();
  else
    return N;
}

/// Whether T has no C array members, so that member_count is right.
template <class T, std::size_t... I>
constexpr bool each_is_one_member(std::index_sequence<I...>) {
  return (is_constructible_braced<T>(std::make_index_sequence<I>{},
                                     std::make_index_sequence<sizeof...(I) - 1 - I>{}) &&
          ...);
}

/// Whether T has more than sizeof...(I) members, as if the next one is a type to which AnyMember
/// does not convert without ambiguity, such as std::optional.
template <class T, std::size_t... I>
constexpr bool has_further_member(std::index_sequence<I...>) {
  return requires { T{AnyMemberOf<T, I>{}..., {}}; };
}

/// Whether each_member can visit T: an aggregate without bases and C arrays, with one to
/// `most_members` members.
template <class T>
constexpr bool is_plain() {
  if constexpr (!std::is_aggregate_v<T> || std::is_array_v<T>)
    return false;
  else if constexpr (member_count<T>() == 0 || member_count<T>() > most_members)
    return false;
  else
    return each_is_one_member<T>(std::make_index_sequence<member_count<T>()>{}) &&
           !has_further_member<T>(std::make_index_sequence<member_count<T>()>{});
}

/// Calls `f` with each member of a plain aggregate, in order. C++20 has no reflection, hence one
/// structured binding per number of members.
template <class T, class F>
void each_member(const T& value, F&& f) {
  constexpr std::size_t n = member_count<T>();
  const auto all = [&](const auto&... members) { (f(members), ...); };
  if constexpr (n == 1) {
    const auto& [a] = value;
    all(a);
  } else if constexpr (n == 2) {
    const auto& [a, b] = value;
    all(a, b);
  } else if constexpr (n == 3) {
    const auto& [a, b, c] = value;
    all(a, b, c);
  } else if constexpr (n == 4) {
    const auto& [a, b, c, d] = value;
    all(a, b, c, d);
  } else if constexpr (n == 5) {
    const auto& [a, b, c, d, e] = value;
    all(a, b, c, d, e);
  } else if constexpr (n == 6) {
    const auto& [a, b, c, d, e, g] = value;
    all(a, b, c, d, e, g);
  } else if constexpr (n == 7) {
    const auto& [a, b, c, d, e, g, h] = value;
    all(a, b, c, d, e, g, h);
  } else if constexpr (n == 8) {
    const auto& [a, b, c, d, e, g, h, i] = value;
    all(a, b, c, d, e, g, h, i);
  } else if constexpr (n == 9) {
    const auto& [a, b, c, d, e, g, h, i, j] = value;
    all(a, b, c, d, e, g, h, i, j);
  } else if constexpr (n == 10) {
    const auto& [a, b, c, d, e, g, h, i, j, k] = value;
    all(a, b, c, d, e, g, h, i, j, k);
  } else if constexpr (n == 11) {
    const auto& [a, b, c, d, e, g, h, i, j, k, l] = value;
    all(a, b, c, d, e, g, h, i, j, k, l);
  } else {
    const auto& [a, b, c, d, e, g, h, i, j, k, l, m] = value;
    all(a, b, c, d, e, g, h, i, j, k, l, m);
  }
}

/// A value of an op, or the op itself.
struct OpValue {
  using Group = std::vector<OpValue>;

  std::string_view name{};  ///< of the member; empty for an element of an array
  std::variant<std::monostate, bool, long long, unsigned long long, float, double, std::string,
               Shape, Group>
      value{};
  bool is_op = false;           ///< an op, or an op within an op, as in SeparableConv2D
  std::string_view layer = {};  ///< Keras' layer of an op of the library: "Conv2D"
};

/// "Conv2D" for lockstep::Conv2DOp; empty for an op of another namespace.
template <class O>
constexpr std::string_view layer_of_op() {
  constexpr std::string_view whole = pretty_function<O>();
  constexpr std::string_view name = class_name<O>();
  if (!whole.substr(whole.find("T = ") + 4).starts_with("lockstep::")) return {};
  return name.ends_with("Op") ? name.substr(0, name.size() - 2) : name;
}

/// Adds a member whose name is the next one in `names`, separated by spaces.
LOCKSTEP_COLD_DECL void add_member(OpValue::Group& to, std::string_view& names, OpValue member);

/// A value of any kind. The names of an aggregate's members are those of Keras' arguments, from
/// its static `members`, as far as it has any; a dot before a name marks a number that follows
/// from the layer's input, so that Keras has no such argument; a question mark before a name marks
/// a number that is left out while it is 1, so that models without the option have the text that
/// they had before it existed. Empty for a type that is not a plain
/// aggregate.
template <class V>
OpValue op_value(const V& value) {
  if constexpr (std::is_enum_v<V> && requires { keras_name(value); }) {
    return {.value = std::string(keras_name(value))};
  } else if constexpr (std::is_enum_v<V>) {
    return op_value(static_cast<std::underlying_type_t<V>>(value));
  } else if constexpr (std::is_same_v<V, bool> || std::is_floating_point_v<V> ||
                       std::is_same_v<V, Shape>) {
    return {.value = value};
  } else if constexpr (std::is_integral_v<V>) {
    using Wide = std::conditional_t<std::is_signed_v<V>, long long, unsigned long long>;
    return {.value = static_cast<Wide>(value)};
  } else if constexpr (std::is_convertible_v<V, std::string_view>) {
    return {.value = std::string(std::string_view(value))};
  } else if constexpr (requires { value.begin() != value.end(); }) {
    OpValue::Group group;
    std::string_view no_names;
    for (const auto& element : value) add_member(group, no_names, op_value(element));
    return {.value = std::move(group)};
  } else if constexpr (is_plain<V>()) {
    OpValue::Group group;
    std::string_view names;
    if constexpr (requires { V::members; }) names = V::members;
    each_member(value, [&](const auto& member) { add_member(group, names, op_value(member)); });
    OpValue result{.value = std::move(group)};
    if constexpr (Op<V>) {
      result.is_op = true;
      result.layer = layer_of_op<V>();
    }
    return result;
  } else {
    static_assert(
        !requires { V::members; },
        "lockstep: an op with names of members has a member that each_member cannot visit");
    return {};
  }
}

/// A model's graph without its type.
struct DescribedGraph {
  std::span<const Node> nodes;
  std::span<const ValueId> operands;  ///< of all nodes
  std::span<const NamedParameter> parameters;
  std::span<const Shape> shapes;  ///< by ValueId
  ValueId output;
  OpValue (*op)(const Node&);

  const Shape& shape(ValueId value) const { return shapes[static_cast<std::size_t>(value)]; }
};

/// The op of a node of Net's graph.
template <class Net, class... Ops>
OpValue op_of(const Node& node, List<Ops...>) {
  OpValue result;
  // An initializer list instead of a fold: clang folds at most 256 operands.
  for (const bool found : std::initializer_list<bool>{
           (node.type == index_in<Ops>(List<Ops...>{}) &&
            (result = op_value(Net::graph.pool.template of<Ops>().op[node.op]), true))...})
    if (found) break;
  return result;
}
template <class Net>
OpValue op_of(const Node& node) {
  return op_of<Net>(node, typename std::remove_cvref_t<decltype(Net::graph)>::ops{});
}

template <class Net>
DescribedGraph described_graph() {
  return {{Net::graph.node.data(), static_cast<std::size_t>(Net::graph.nodes)},
          Net::graph.operand,
          named_parameters<Net>(),
          {Net::graph.value.begin(), Net::graph.value.end()},
          Net::graph.output,
          &op_of<Net>};
}

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/export/op_values.ipp"
#endif
