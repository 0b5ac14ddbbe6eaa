#pragma once

#include "lockstep/training/step/updates.hpp"

#include <initializer_list>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

inline bool name_contains(const NamedParameter& p, std::string_view text) {
  return parameter_name(p).find(text) != std::string::npos;
}

/// Whether a layer of the library may have a parameter with such a name, so that models with
/// different layers can share a list.
inline bool is_usual_name(std::string_view text) {
  for (const std::string_view name :
       {"kernel", "bias", "gamma", "beta", "embeddings", "depthwise_kernel", "pointwise_kernel"})
    if (name.find(text) != std::string_view::npos) return true;
  return false;
}

/// The place of the layer of each trainable parameter: f(parameter, index, node).
template <class F>
[[gnu::cold]] void each_weight(std::span<const NamedParameter> parameters,
                               std::span<const Node> nodes, const F& f) {
  std::size_t node = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const NamedParameter& p = parameters[i];
    if (!p.trainable) continue;
    while (node < nodes.size() && (nodes[node].is_activation || !is_of(p, nodes[node]))) ++node;
    f(p, i, node);
  }
}

std::span<const PenaltySegment> penalties_of(std::span<const NamedParameter> parameters,
                                             const LayerSettings& settings,
                                             std::span<const Node> nodes,
                                             std::unique_ptr<PenaltySegment[]>& storage) {
  if (!storage) storage = std::make_unique<PenaltySegment[]>(parameters.size());
  PenaltySegment* next = storage.get();
  each_weight(parameters, nodes, [&](const NamedParameter& p, std::size_t, std::size_t node) {
    *next++ = {p.offset, p.offset + p.shape.size(), settings.is_held(node) ? Penalty{} : p.penalty};
  });
  return {storage.get(), next};
}

/// The number of the first trainable parameter in the block of parameter `i`, or in its layer if that
/// is outside of named blocks.
[[gnu::cold]] inline std::size_t first_of_block(std::span<const NamedParameter> parameters,
                                                std::size_t i) {
  const NamedParameter& p = parameters[i];
  std::size_t number = 0;
  for (const NamedParameter& other : parameters) {
    if (!other.trainable) continue;
    const bool is_of_layer = other.layer == p.layer && other.ordinal == p.ordinal;
    if (other.block == p.block && (is_of_layer || !p.block.empty())) break;
    ++number;
  }
  return number;
}

std::size_t update_segments(std::span<const NamedParameter> parameters, bool each,
                            const NameList& no_decay, const LayerSettings& settings,
                            std::span<const Node> nodes, UpdateSegment* result) {
  check_names("exclude_from_weight_decay", no_decay, parameters);
  UpdateSegment* next = result;
  each_weight(parameters, nodes, [&](const NamedParameter& p, std::size_t i, std::size_t node) {
    const ParameterMultipliers its = settings.multipliers(i);
    *next = {p.offset, p.offset + p.shape.size(), p.penalty, its.decay,
             its.rate, settings.is_held(node),    p.shape};
    if (each) next->block = first_of_block(parameters, i);
    for (const std::string& text : no_decay)
      if (name_contains(p, text)) next->decay = 0;
    if (!each && next > result && next[-1].penalty == next->penalty &&
        next[-1].decay == next->decay && next[-1].rate == next->rate &&
        next[-1].is_held == next->is_held)
      next[-1].end = next->end;
    else
      ++next;
  });
  return static_cast<std::size_t>(next - result);
}

void set_rules(std::span<const NamedParameter> parameters,
               FunctionRef<ParameterRule(std::string_view, const Shape&)> rule_of,
               UpdateSegment* segments) {
  for (const NamedParameter& p : parameters) {
    if (!p.trainable) continue;
    const ParameterRule rule = rule_of(parameter_name(p), p.shape);
    segments->slot = rule.slot;
    segments->is_by_elements = rule.is_by_elements;
    if (rule.shape.rank > 0) segments->shape = rule.shape;
    segments->decay *= rule.weight_decay;
    ++segments;
  }
}

void check_names(std::string_view option, const NameList& names,
                 std::span<const NamedParameter> parameters) {
  for (const std::string& text : names) {
    bool found = is_usual_name(text);
    for (const NamedParameter& p : parameters) found |= p.trainable && name_contains(p, text);
    if (!found)
      throw UsageError("{}: no parameter's name contains '{}'; model.parameters() lists the names",
                       option, text);
  }
}

}  // namespace lockstep::detail
