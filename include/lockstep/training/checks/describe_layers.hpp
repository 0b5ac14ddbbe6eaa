/// \file
/// A model's layers as text, so that the processes of a job can compare their models. Invariants:
/// models that compute differently give different text if their ops are plain aggregates of values;
/// equal models give equal text with any compiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/core/config.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/layers/options.hpp"
#include "lockstep/training/parameters.hpp"
#include "lockstep/training/weights_file.hpp"

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
inline constexpr std::size_t most_members = 10;

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

/// Whether each_member can visit T: an aggregate without bases and C arrays, with one to ten
/// members.
template <class T>
constexpr bool is_plain() {
  if constexpr (!std::is_aggregate_v<T> || std::is_array_v<T>)
    return false;
  else if constexpr (member_count<T>() == 0 || member_count<T>() > most_members)
    return false;
  else
    return each_is_one_member<T>(std::make_index_sequence<member_count<T>()>{});
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
  } else {
    const auto& [a, b, c, d, e, g, h, i, j, k] = value;
    all(a, b, c, d, e, g, h, i, j, k);
  }
}

/// Writes an aggregate's values to a string: "(filters 32, strides (1, 1))".
class MemberText {
 public:
  /// `names`: the members' names, separated by spaces; may be fewer than there are members.
  MemberText(std::string& to, std::string_view names) : to_(to), names_(names) {}
  /// Writes the separator and the next name. Call before writing each value.
  LOCKSTEP_COLD_DECL void next();
  /// Drops the next name, for a value that is not written.
  LOCKSTEP_COLD_DECL void skip();
  /// Writes the closing parenthesis.
  LOCKSTEP_COLD_DECL void end();

 private:
  /// Pops the next name; empty if none are left.
  LOCKSTEP_COLD_DECL std::string_view next_name();

  std::string& to_;
  std::string_view names_;
  bool is_empty_ = true;
};

/// Append a number in its shortest form that reads back as the same value.
LOCKSTEP_COLD_DECL void append_number(std::string& to, float value);
LOCKSTEP_COLD_DECL void append_number(std::string& to, double value);
LOCKSTEP_COLD_DECL void append_whole(std::string& to, long long value);
LOCKSTEP_COLD_DECL void append_whole(std::string& to, unsigned long long value);

/// Appends a value of any kind to `to`. The names of an aggregate's members come from its static
/// `members`. A member that equals `in`, the shape of the layer's input, is left out: the layer
/// before shows it.
template <class V>
void append_value(std::string& to, const V& value, const Shape& in) {
  if constexpr (std::is_same_v<V, bool>) {
    to += value ? "yes" : "no";
  } else if constexpr (std::is_same_v<V, Padding>) {
    to += value == Padding::same ? "same" : "valid";
  } else if constexpr (std::is_enum_v<V>) {
    append_value(to, static_cast<std::underlying_type_t<V>>(value), in);
  } else if constexpr (std::is_floating_point_v<V>) {
    append_number(to, value);
  } else if constexpr (std::is_same_v<V, Shape>) {
    to += to_string(value);
  } else if constexpr (std::is_integral_v<V>) {
    append_whole(
        to,
        static_cast<std::conditional_t<std::is_signed_v<V>, long long, unsigned long long>>(value));
  } else if constexpr (std::is_convertible_v<V, std::string_view>) {
    to += std::string_view(value);
  } else if constexpr (requires { value.begin() != value.end(); }) {
    MemberText text(to, {});
    for (const auto& element : value) {
      text.next();
      append_value(to, element, in);
    }
    text.end();
  } else if constexpr (is_plain<V>()) {
    std::string_view names;
    if constexpr (requires { V::members; }) names = V::members;
    MemberText text(to, names);
    each_member(value, [&](const auto& member) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(member)>, Shape>)
        if (member == in) return text.skip();
      text.next();
      append_value(to, member, in);
    });
    text.end();
  }
}

/// The values of a node's op in parentheses; empty if it has none.
template <class G, class... Ops>
std::string describe_op(const G& graph, const Node& node, List<Ops...>) {
  const Shape& in = graph.value[node.in0];
  std::string result;
  // An initializer list instead of a fold: clang folds at most 256 operands.
  for (const bool found : std::initializer_list<bool>{
           (node.type == index_in<Ops>(List<Ops...>{}) &&
            (append_value(result, graph.pool.template of<Ops>().op[node.op], in), true))...})
    if (found) break;
  if (result == "()") result.clear();
  return result;
}

/// A model's graph without its type, for describe_layers.
struct DescribedGraph {
  std::span<const Node> nodes;
  std::span<const NamedParameter> parameters;
  FunctionRef<Shape(ValueId)> shape;
  FunctionRef<std::string(const Node&)> op;
};

/// For each layer: its name, its inputs if they are not the previous layer's output, its op, the
/// shape of its output, its parameters.
/// \code
///   "conv2d (filters 32, ...) to (26, 26, 32), kernel (3, 3, 1, 32), bias (32); re_lu to ..."
/// \endcode
LOCKSTEP_COLD_DECL std::string describe_layers(const DescribedGraph& graph);
template <class Net>
std::string describe_layers() {
  constexpr auto& graph = Net::graph;
  const auto shape = [](ValueId value) { return graph.value[value]; };
  const auto op = [](const Node& n) {
    return describe_op(graph, n, typename std::remove_cvref_t<decltype(graph)>::ops{});
  };
  return describe_layers({{graph.node.data(), static_cast<std::size_t>(graph.nodes)},
                          named_parameters<Net>(),
                          shape,
                          op});
}

/// A 64-bit hash of `values`, whose elements have `element` bytes each. Not cryptographic.
LOCKSTEP_COLD_DECL std::uint64_t checksum(std::span<const std::byte> values, std::size_t element);

/// The first value and the checksum of each parameter. Detects different initializers, and math
/// libraries that round differently.
LOCKSTEP_COLD_DECL std::string describe_values(std::span<const NamedParameter> parameters,
                                               const ValueBytes<const std::byte>& values);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/checks/describe_layers.ipp"
#endif
