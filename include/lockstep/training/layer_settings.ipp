#pragma once

#include "lockstep/training/layer_settings.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"
#include "lockstep/training/parameters.hpp"

namespace lockstep::detail {

/// Insertions, deletions and replacements between two names.
[[gnu::cold]] inline std::size_t name_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t k = 0; k < row.size(); ++k) row[k] = k;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t before = row[0];
    row[0] = i + 1;
    for (std::size_t k = 0; k < b.size(); ++k) {
      const std::size_t changed = before + (a[i] == b[k] ? 0 : 1);
      before = row[k + 1];
      row[k + 1] = std::min(changed, std::min(before, row[k]) + 1);
    }
  }
  return row[b.size()];
}

/// The names that are most like the pattern, up to four. Changes `names`.
[[gnu::cold]] inline std::string near_names(std::string_view pattern,
                                            std::vector<std::string>& names) {
  constexpr std::size_t most = 4;
  std::string list;
  for (std::size_t i = 0; i < names.size() && i < most; ++i) {
    std::size_t nearest = i;
    for (std::size_t k = i + 1; k < names.size(); ++k)
      if (name_distance(pattern, names[k]) < name_distance(pattern, names[nearest])) nearest = k;
    std::swap(names[i], names[nearest]);
    add_item(list, ", ", names[i]);
  }
  return list + (names.size() > most ? ", ..." : "");
}

/// Whether a pattern selects a name, or a block that contains it.
[[gnu::cold]] inline bool selects(const std::string& pattern, std::string_view name) {
  const NamePatterns one(pattern);
  for (std::size_t end = name.size(); end != std::string_view::npos && end > 0;
       end = name.rfind('/', end - 1))
    if (one.match(name.substr(0, end))) return true;
  return false;
}

[[gnu::cold]] inline bool has_parameters(const Node& n) {
  return n.w_count + n.state_count > 0 && !n.is_activation;
}

LayerSettings LayerSettings::with_trainable(std::span<const Node> nodes, const NamePatterns& layers,
                                            bool on) const {
  std::string held = held_;
  held.resize(nodes.size(), '0');
  for (const std::string& pattern : layers) {
    std::vector<std::string> names;
    std::string frozen;
    bool found = false;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (!has_parameters(nodes[i])) continue;
      if (const int first = nodes[i].first; first >= 0) {  // has the weights of another node
        held[i] = held[static_cast<std::size_t>(first)];
        continue;
      }
      const std::string& name = names.emplace_back(layer_name(nodes[i]));
      if (!selects(pattern, name)) continue;
      if (nodes[i].is_frozen && on) {
        frozen = name;
        continue;
      }
      found = true;
      if (!nodes[i].is_frozen) held[i] = on ? '0' : '1';
    }
    if (!found && !frozen.empty())
      throw UsageError(
          "set_trainable: {} is within ls::Frozen, which is a part of the network; leave it out "
          "there, and freeze the layer by set_trainable",
          frozen);
    if (!found)
      throw UsageError(
          "set_trainable: {} selects no layer with parameters; the nearest names are {}",
          shown_name(pattern), near_names(pattern, names));
  }
  LayerSettings result = *this;
  result.held_ = held.find('1') == std::string::npos ? std::string() : std::move(held);
  return result;
}

LayerSettings LayerSettings::with_multiplier(const char* call,
                                             std::span<const NamedParameter> parameters,
                                             const NamePatterns& names, Multiplier which,
                                             double value) const {
  if (!(value >= 0) || !std::isfinite(value))
    throw UsageError("{}: the multiplier is {}; it must be at least 0 and finite", call, value);
  LayerSettings result = *this;
  std::vector<double>& values = which == Multiplier::rate ? result.rate_ : result.decay_;
  values.resize(parameters.size(), 1);
  for (const std::string& pattern : names) {
    std::vector<std::string> all;
    bool found = false;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].trainable) continue;
      const std::string& name = all.emplace_back(parameter_name(parameters[i]));
      if (!selects(pattern, name)) continue;
      found = true;
      values[i] = value;
    }
    if (!found)
      throw UsageError("{}: {} selects no parameter that trains; the nearest names are {}", call,
                       shown_name(pattern), near_names(pattern, all));
  }
  bool is_default = true;
  for (const double v : values) is_default = is_default && v == 1;
  if (is_default) values.clear();
  return result;
}

bool LayerSettings::operator==(const LayerSettings& other) const {
  return held_ == other.held_ && rate_ == other.rate_ && decay_ == other.decay_;
}

NamedSettings LayerSettings::named(std::span<const Node> nodes,
                                   std::span<const NamedParameter> parameters) const {
  NamedSettings result;
  for (std::size_t i = 0; i < held_.size(); ++i)
    if (is_held(i) && nodes[i].first < 0) result.held.push_back(layer_name(nodes[i]));
  for (std::size_t i = 0; i < std::max(rate_.size(), decay_.size()); ++i)
    if (const ParameterMultipliers its = multipliers(i); its.rate != 1 || its.decay != 1) {
      result.parameters.push_back(parameter_name(parameters[i]));
      result.multipliers.push_back(its.rate);
      result.multipliers.push_back(its.decay);
    }
  return result;
}

void LayerSettings::load(const NamedSettings& from, std::span<const Node> nodes,
                         std::span<const NamedParameter> parameters) {
  *this = {};
  if (!from.held.empty()) held_.assign(nodes.size(), '0');
  for (const std::string& name : from.held)
    for (std::size_t i = 0; i < nodes.size(); ++i)
      if (nodes[i].first >= 0)
        held_[i] = held_[static_cast<std::size_t>(nodes[i].first)];
      else if (has_parameters(nodes[i]) && !nodes[i].is_frozen && layer_name(nodes[i]) == name)
        held_[i] = '1';
  if (held_.find('1') == std::string::npos) held_.clear();
  for (std::size_t k = 0; k < from.parameters.size(); ++k)
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].trainable || parameter_name(parameters[i]) != from.parameters[k]) continue;
      rate_.resize(parameters.size(), 1);
      decay_.resize(parameters.size(), 1);
      rate_[i] = from.multipliers[2 * k];
      decay_[i] = from.multipliers[2 * k + 1];
    }
}

std::size_t LayerSettings::held_weights(std::span<const Node> nodes) const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < held_.size(); ++i)
    if (is_held(i) && nodes[i].first < 0) count += nodes[i].w_count;
  return count;
}

std::string LayerSettings::held_steps(std::span<const PlacedStep> steps,
                                      std::span<const Node> nodes) const {
  std::string result;
  if (held_.empty()) return result;
  for (const PlacedStep& s : steps) {
    std::size_t first = nodes.size();  // the first node with parameters
    for (int k = 0; k < s.node_count; ++k) {
      const std::size_t node = s.nodes[static_cast<std::size_t>(k)];
      if (!has_parameters(nodes[node])) continue;
      if (first == nodes.size()) first = node;
      if (held_[node] != held_[first])
        throw UsageError(
            "set_trainable: the device computes {} and {} in one kernel, so that both train or "
            "neither does; select both",
            layer_name(nodes[first]), layer_name(nodes[node]));
    }
    result += first < nodes.size() ? held_[first] : '0';
  }
  return result;
}

std::string to_string(const NamedSettings& settings) {
  std::string text;
  for (const std::string& name : settings.held) add_item(text, "; ", name + " held");
  for (std::size_t i = 0; i < settings.parameters.size(); ++i)
    add_item(text, "; ",
             format_text("{} rate {}, decay {}", settings.parameters[i],
                         settings.multipliers[2 * i], settings.multipliers[2 * i + 1]));
  return text;
}

}  // namespace lockstep::detail
