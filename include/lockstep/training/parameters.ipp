#pragma once

#include "lockstep/training/parameters.hpp"

#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

std::string value_name(std::span<const Node> nodes, ValueId value) {
  for (const Node& n : nodes)
    if (n.out == value) return layer_name(n) + (n.call > 0 ? format_text("[{}]", n.call) : "");
  return "input";
}

std::string parameter_name(const NamedParameter& p) {
  return format_text("{}/{}", layer_name(p), p.name);
}

std::vector<ParameterInfo> parameters_of(std::span<const NamedParameter> parameters) {
  std::vector<ParameterInfo> result;
  result.reserve(parameters.size());
  for (const NamedParameter& p : parameters)
    result.push_back({parameter_name(p), p.shape, p.offset, p.trainable});
  return result;
}

ParameterInfo parameter_named(std::span<const NamedParameter> parameters, std::string_view name) {
  std::string known;
  for (ParameterInfo& info : parameters_of(parameters)) {
    if (info.name == name) return std::move(info);
    known += (known.empty() ? "" : ", ") + info.name;
  }
  throw UsageError("parameter '{}': no such parameter; the model has {}", name, known);
}

ParameterInfo trainable_parameter_named(std::span<const NamedParameter> parameters,
                                        std::string_view name) {
  ParameterInfo info = parameter_named(parameters, name);
  if (!info.trainable)
    throw UsageError("gradients: {} is not trainable, so it has no gradient", info.name);
  return info;
}

}  // namespace lockstep::detail
