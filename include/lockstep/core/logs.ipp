#pragma once

#include "lockstep/core/logs.hpp"

#include "lockstep/core/add_item.hpp"

namespace lockstep {

void Logs::set(std::string_view name, double value, double step) {
  if (const auto i = find(name)) {
    values_[*i].second = value;
    steps_[*i] = step;
    return;
  }
  add(name, value, step);
}

void Logs::clear() {
  values_.clear();
  steps_.clear();
}

std::optional<double> Logs::get(std::string_view name) const {
  if (const auto i = find(name)) return values_[*i].second;
  return std::nullopt;
}

std::optional<std::size_t> Logs::find(std::string_view name) const {
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (values_[i].first == name) return i;
  return std::nullopt;
}

void Logs::add(std::string_view name, double value, double step) {
  values_.emplace_back(name, value);
  steps_.push_back(step);
}

std::size_t Logs::at(std::string_view name) const {
  if (const auto i = find(name)) return *i;
  std::string known;
  for (const auto& entry : values_) add_item(known, ", ", entry.first);
  throw UsageError(
      "logs: no value is named '{}'; known names: {}; use get() for a value that may be absent",
      name, known.empty() ? "none" : known.c_str());
}

}  // namespace lockstep
