#pragma once

#include "lockstep/training/history.hpp"

#include <cstddef>

#include "lockstep/core/format_text.hpp"

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

void History::save_state(CallbackState& state) const {
  state.set("epoch", std::vector<double>(epoch.begin(), epoch.end()));
  for (std::size_t i = 0; i < values_.size(); ++i)  // numbered, since a state is sorted by name
    state.set(format_text("{:04} {}", i, values_[i].first), values_[i].second);
}

void History::load_state(const CallbackState& state) {
  epoch.clear();  // in an elastic job the run may have logged epochs
  values_.clear();
  for (const double number : state.numbers("epoch")) epoch.push_back(static_cast<int>(number));
  for (const auto& [key, values] : state.all_numbers())
    if (key.size() > 5 && key[4] == ' ') values_.emplace_back(key.substr(5), values);
}

std::vector<double>& History::values_of(const std::string& name) {
  for (auto& [key, values] : values_)
    if (key == name) return values;
  return values_.emplace_back(name, std::vector<double>{}).second;
}

}  // namespace lockstep
