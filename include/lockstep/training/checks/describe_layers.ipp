#pragma once

#include "lockstep/training/checks/describe_layers.hpp"

#include <cstdint>
#include <cstring>

#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/rng.hpp"

namespace lockstep::detail {

/// A parameter's shape, regularizer, and whether it is trainable.
[[gnu::cold]] inline std::string describe_parameter(const NamedParameter& p) {
  std::string result = fmt::format("{} {}", p.name, to_string(p.shape));
  if (p.penalty.l1 != 0) result += " l1 " + shortest_number(p.penalty.l1);
  if (p.penalty.l2 != 0) result += " l2 " + shortest_number(p.penalty.l2);
  if (!p.trainable) result += " not trained";
  return result;
}

std::string_view MemberText::next_name() {
  const std::string_view name = names_.substr(0, names_.find(' '));
  names_.remove_prefix(name.size() + (name.size() < names_.size() ? 1 : 0));
  return name;
}
void MemberText::next() {
  const std::string_view name = next_name();
  to_ += is_empty_ ? "(" : ", ";
  is_empty_ = false;
  to_ += name;
  if (!name.empty()) to_ += ' ';
}
void MemberText::skip() { next_name(); }
void MemberText::end() { to_ += is_empty_ ? "()" : ")"; }

void append_number(std::string& to, float value) { to += shortest_number(value); }
void append_number(std::string& to, double value) { to += shortest_number(value); }
void append_whole(std::string& to, long long value) { to += std::to_string(value); }
void append_whole(std::string& to, unsigned long long value) { to += std::to_string(value); }

std::string describe_layers(const DescribedGraph& graph) {
  std::string result;
  auto parameter = graph.parameters.begin();
  ValueId last = ValueId::batch;
  for (const Node& n : graph.nodes) {
    if (!result.empty()) result += "; ";
    result += layer_name(n.name, n.ordinal);
    if (n.is_activation) result += fmt::format("'s {}", n.class_name);
    if (exists(n.in1))
      result += fmt::format(" of {} and {}", value_name(graph.nodes, n.in0),
                            value_name(graph.nodes, n.in1));
    else if (n.in0 != last)
      result += " of " + value_name(graph.nodes, n.in0);
    last = n.out;
    if (const std::string op = graph.op(n); !op.empty()) result += " " + op;
    result += " to " + to_string(graph.shape(n.out));
    for (; parameter != graph.parameters.end(); ++parameter) {
      if (parameter->layer != n.name || parameter->ordinal != n.ordinal) break;
      result += ", " + describe_parameter(*parameter);
    }
  }
  return result;
}

std::uint64_t checksum(std::span<const std::byte> values, std::size_t element) {
  std::uint64_t sum = values.size() / element;
  for (; !values.empty(); values = values.subspan(element)) {
    std::uint64_t word = 0;
    std::memcpy(&word, values.data(), element);
    sum = mix(sum, word);
  }
  return sum;
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
    result += fmt::format("{}{} {}, checksum {:016x}", result.empty() ? "" : "; ", p.name, first,
                          checksum(own, size_of(values.type)));
  }
  return result;
}

}  // namespace lockstep::detail
