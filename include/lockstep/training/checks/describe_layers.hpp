/// \file
/// A model's layers as text, for comparing the processes of a job. Invariants: models that compute
/// differently give different text, as far as their ops are plain aggregates of values; equal
/// models give equal text with any compiler.
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/layers/options.hpp"
#include "lockstep/training/parameters.hpp"

namespace lockstep::detail {

/// Becomes a member of `Whole` of any type, but no base of it.
template <class Whole>
struct AnyMember {
  template <class M>
    requires(!std::is_base_of_v<M, Whole>)
  operator M() const;
};
template <class T, std::size_t>
using AnyMemberOf = AnyMember<T>;

inline constexpr std::size_t most_members = 10;

/// Whether T can be made from so many values.
template <class T, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires { T{AnyMemberOf<T, I>{}...}; };
}
/// The same with the one after the first I in braces of its own, which fails in a C array.
template <class T, std::size_t... I, std::size_t... K>
constexpr bool takes_braced(std::index_sequence<I...>, std::index_sequence<K...>) {
  return requires { T{AnyMemberOf<T, I>{}..., {AnyMember<T>{}}, AnyMemberOf<T, K>{}...}; };
}

template <class T, std::size_t N = 0>
constexpr std::size_t member_count() {
  if constexpr (N > most_members)
    return N;
  else if constexpr (takes<T>(std::make_index_sequence<N + 1>{}))
    return member_count<T, N + 1>();
  else
    return N;
}

template <class T, std::size_t... I>
constexpr bool each_is_one_member(std::index_sequence<I...>) {
  return (takes_braced<T>(std::make_index_sequence<I>{},
                          std::make_index_sequence<sizeof...(I) - 1 - I>{}) &&
          ...);
}

/// Whether T's values can be told one by one: an aggregate without bases and C arrays, of at most
/// ten members.
template <class T>
constexpr bool is_plain() {
  if constexpr (!std::is_aggregate_v<T> || std::is_array_v<T>)
    return false;
  else if constexpr (member_count<T>() == 0 || member_count<T>() > most_members)
    return false;
  else
    return each_is_one_member<T>(std::make_index_sequence<member_count<T>()>{});
}

/// Calls `f` with each member of a plain aggregate, in order.
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

/// The shortest text that reads back as the same number of this type.
template <class V>
std::string shortest_number(V value) {
  std::array<char, 64> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}

/// Takes the first word off `words`.
inline std::string_view next_word(std::string_view& words) {
  const std::string_view word = words.substr(0, words.find(' '));
  words.remove_prefix(word.size() + (word.size() < words.size() ? 1 : 0));
  return word;
}

/// Adds a value to `to`. The members of an aggregate have the names that it tells by `members`; one
/// that is the shape `in` of the layer's input is left out.
template <class V>
void append_value(std::string& to, const V& value, const Shape& in) {
  if constexpr (std::is_same_v<V, bool>) {
    to += value ? "yes" : "no";
  } else if constexpr (std::is_same_v<V, Padding>) {
    to += value == Padding::same ? "same" : "valid";
  } else if constexpr (std::is_enum_v<V>) {
    to += text({static_cast<std::underlying_type_t<V>>(value)});
  } else if constexpr (std::is_floating_point_v<V>) {
    to += shortest_number(value);
  } else if constexpr (std::is_same_v<V, Shape>) {
    to += to_string(value);
  } else if constexpr (std::is_convertible_v<V, Piece>) {
    to += text({value});
  } else if constexpr (requires { value.begin() != value.end(); }) {
    std::string_view before = "(";
    for (const auto& element : value) {
      to += std::exchange(before, ", ");
      append_value(to, element, in);
    }
    to += ')';
  } else if constexpr (is_plain<V>()) {
    std::string_view names, before = "(";
    if constexpr (requires { V::members; }) names = V::members;
    each_member(value, [&](const auto& member) {
      const std::string_view name = next_word(names);
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(member)>, Shape>)
        if (member == in) return;
      to += std::exchange(before, ", ");
      to += name;
      if (!name.empty()) to += ' ';
      append_value(to, member, in);
    });
    to += before == "(" ? "()" : ")";
  }
}

/// The op of a node: its values in parentheses, nothing if it has none.
template <class G, class... Ops>
std::string describe_op(const G& graph, const Node& node, List<Ops...>) {
  const Shape& in = graph.value[node.in0];
  std::string result;
  // In a list: clang folds at most 256 operands.
  for (const bool found : std::initializer_list<bool>{
           (node.type == index_in<Ops>(List<Ops...>{}) &&
            (append_value(result, graph.pool.template of<Ops>().op[node.op], in), true))...})
    if (found) break;
  if (result == "()") result.clear();
  return result;
}

/// A parameter's shape, penalty and kind.
LOCKSTEP_DECL std::string describe_parameter(const NamedParameter& p);

/// Each layer: its name, what it takes if that is not what stands before it, its op, the shape of
/// its result, its parameters.
/// \code
///   "conv2d (filters 32, ...) to (26, 26, 32), kernel (3, 3, 1, 32), bias (32); re_lu to ..."
/// \endcode
template <class Net>
[[gnu::cold]] std::string describe_layers() {
  constexpr auto& graph = Net::graph;
  const std::span<const Node> nodes(graph.node.data(), static_cast<std::size_t>(graph.nodes));
  std::string result;
  std::size_t parameter = 0;
  ValueId last = ValueId::batch;
  for (const Node& n : nodes) {
    if (!result.empty()) result += "; ";
    result += layer_name(n.name, n.ordinal);
    if (n.is_activation) result += text({"'s ", n.class_name});
    if (exists(n.in1))
      result += text({" of ", value_name(nodes, n.in0), " and ", value_name(nodes, n.in1)});
    else if (n.in0 != last)
      result += " of " + value_name(nodes, n.in0);
    last = n.out;
    const std::string op =
        describe_op(graph, n, typename std::remove_cvref_t<decltype(graph)>::ops{});
    if (!op.empty()) result += " " + op;
    result += text({" to ", graph.value[n.out]});
    for (; parameter < static_cast<std::size_t>(graph.parameters); ++parameter) {
      const NamedParameter& p = graph.parameter[parameter];
      if (p.layer != n.name || p.ordinal != n.ordinal) break;
      result += ", " + describe_parameter(p);
    }
  }
  return result;
}

/// A number that differs, in all likelihood, if a bit of `values` does.
template <class T>
std::uint64_t checksum(std::span<const T> values) {
  std::uint64_t sum = values.size();
  for (const T& value : values) {
    std::uint64_t word = 0;
    std::memcpy(&word, &value, sizeof(T));
    sum = mix(sum, word);
  }
  return sum;
}

/// The values that the parameters begin with: of each one the first value and a checksum of all.
/// They differ with the initializer, and with a machine's mathematical functions.
template <class Net, class T>
[[gnu::cold]] std::string describe_values(std::span<const T> weights, std::span<const T> state) {
  std::string result;
  for (const ParameterInfo& p : parameters_of<Net>()) {
    const auto values = (p.trainable ? weights : state).subspan(p.offset, p.size());
    result += text({result.empty() ? "" : "; ", p.name, " ",
                    values.empty() ? "" : shortest_number(values[0]), ", checksum ",
                    print("%016llx", static_cast<unsigned long long>(checksum(values)))});
  }
  return result;
}

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/checks/describe_layers.ipp"
#endif
