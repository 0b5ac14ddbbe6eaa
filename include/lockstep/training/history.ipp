#pragma once

#include "lockstep/training/history.hpp"

namespace lockstep {

const std::vector<double>& History::operator[](std::string_view name) const& {
  std::string known;
  for (const auto& [key, values] : values_) {
    if (key == name) return values;
    known += (known.empty() ? "" : ", ") + key;
  }
  throw UsageError("history: no value named '{}'; {}{}", name,
                   known.empty() ? "no epoch was finished" : "known names: ", known);
}

bool History::contains(std::string_view name) const {
  for (const auto& entry : values_)
    if (entry.first == name) return true;
  return false;
}

std::vector<std::string> History::names() const {
  std::vector<std::string> result;
  for (const auto& entry : values_) result.push_back(entry.first);
  return result;
}

void History::on_train_begin(const Logs&) {
  epoch.clear();
  values_.clear();
}

void History::on_epoch_end(int number, const Logs& logs) {
  epoch.push_back(number);
  for (const auto& [name, value] : logs) values_of(name).push_back(value);
}

std::vector<double>& History::values_of(const std::string& name) {
  for (auto& [key, values] : values_)
    if (key == name) return values;
  return values_.emplace_back(name, std::vector<double>{}).second;
}

}  // namespace lockstep
