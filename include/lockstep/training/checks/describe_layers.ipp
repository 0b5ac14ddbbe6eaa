#pragma once

#include "lockstep/training/checks/describe_layers.hpp"

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>

#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/digest64.hpp"

namespace lockstep::detail {

/// A parameter's shape, regularizer, and whether it is trainable.
[[gnu::cold]] inline std::string describe_parameter(const NamedParameter& p) {
  std::string result = format_text("{} {}", p.name, to_string(p.shape));
  if (p.penalty.l1 != 0) result += " l1 " + shortest_number(p.penalty.l1);
  if (p.penalty.l2 != 0) result += " l2 " + shortest_number(p.penalty.l2);
  if (p.is_frozen)
    result += frozen_mark;
  else if (!p.trainable)
    result += " not trained";
  return result;
}

/// Appends a value as text: "yes", "0.5", "(filters 32, strides (1, 1))".
[[gnu::cold]] inline void append_value(std::string& to, const OpValue& value, const Shape& in) {
  const auto append = [&]<class V>(const V& v) {
    if constexpr (std::is_same_v<V, bool>) {
      to += v ? "yes" : "no";
    } else if constexpr (std::is_floating_point_v<V>) {
      to += shortest_number(v);
    } else if constexpr (std::is_integral_v<V>) {
      to += std::to_string(v);
    } else if constexpr (std::is_same_v<V, Shape>) {
      to += to_string(v);
    } else if constexpr (std::is_same_v<V, std::string>) {
      to += v;
    } else if constexpr (std::is_same_v<V, OpValue::Group>) {
      const char* separator = "(";
      for (const OpValue& member : v) {
        if (const Shape* shape = std::get_if<Shape>(&member.value); shape && *shape == in) continue;
        to += std::exchange(separator, ", ");
        const std::string_view name = member.name;
        to += name.substr(name.starts_with('.') ? 1 : 0);
        if (!name.empty()) to += ' ';
        append_value(to, member, in);
      }
      to += *separator == '(' ? "()" : ")";
    }
  };
  std::visit(append, value.value);
}

/// The values of a node's op in parentheses; empty if it has none.
[[gnu::cold]] inline std::string describe_op(const DescribedGraph& graph, const Node& node) {
  std::string result;
  append_value(result, graph.op(node), graph.shape(node.operands_of(graph.operands).front()));
  return result == "()" ? "" : result;
}

std::string describe_layers(const DescribedGraph& graph) {
  std::string result;
  auto parameter = graph.parameters.begin();
  ValueId last = ValueId::batch;
  for (const Node& n : graph.nodes) {
    if (!result.empty()) result += "; ";
    result += layer_name(n);
    if (n.is_activation) result += format_text("'s {}", n.class_name);
    const std::span<const ValueId> operands = n.operands_of(graph.operands);
    if (operands.size() > 1 || operands[0] != last)
      for (const ValueId& v : operands)
        result += format_text("{} {}",
                              &v == operands.data()    ? " of"
                              : &v == &operands.back() ? " and"
                                                       : ",",
                              value_name(graph.nodes, v));
    last = n.out;
    if (n.first >= 0)
      result +=
          " with the weights of " + layer_name(graph.nodes[static_cast<std::size_t>(n.first)]);
    if (const std::string op = describe_op(graph, n); !op.empty()) result += " " + op;
    result += " to " + to_string(graph.shape(n.out));
    for (; parameter != graph.parameters.end(); ++parameter) {
      if (!is_of(*parameter, n)) break;
      result += ", " + describe_parameter(*parameter);
    }
  }
  return result;
}

std::string describe_members(const OpValue& value) {
  std::string result;
  append_value(result, value, Shape{});
  return result.empty() || result == "()" ? "" : ", options " + result;
}

/// The first value as text; empty if there are no values.
template <class T>
[[gnu::cold]] std::string first_of(std::span<const std::byte> values) {
  if (values.empty()) return "";
  T first;
  std::memcpy(&first, values.data(), sizeof first);
  return shortest_number(first);
}

std::string describe_values(std::span<const NamedParameter> parameters,
                            const ValueBytes<const std::byte>& values) {
  std::string result;
  for (const ParameterInfo& p : parameters_of(parameters)) {
    const std::span<const std::byte> own = values.of(p);
    const std::string first =
        values.type == DType::float32 ? first_of<float>(own) : first_of<double>(own);
    result += format_text("{}{} {}, checksum {:016x}", result.empty() ? "" : "; ", p.name, first,
                          Digest64().add(own).value());
  }
  return result;
}

}  // namespace lockstep::detail
