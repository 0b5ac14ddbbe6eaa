/// \file
/// What `fit` returns. Invariant: a name's values are in the order of the epochs that had it; a
/// name that only some epochs have (validation_freq) has fewer values than there are epochs.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/concepts/callback.hpp"

namespace lockstep {

/// The logs of each epoch (Keras' History). A new training run clears it.
/// \code
///   auto history = model.fit(train, {.epochs = 3});
///   double last = history["loss"].back();          // and history["val_loss"] with validation
///   for (int epoch : history.epoch) ...            // 0, 1, 2
/// \endcode
class History : public Callback {
 public:
  std::vector<int> epoch;  ///< numbers of the epochs that were finished, counted from 0

  /// One value an epoch. \throws UsageError, which lists the known names, for any other name.
  const std::vector<double>& operator[](std::string_view name) const& {
    std::string known;
    for (const auto& [key, values] : values_) {
      if (key == name) return values;
      known += (known.empty() ? "" : ", ") + key;
    }
    throw UsageError({"history: there is no value named '", name, "'; known here: ",
                      known.empty() ? "none, no epoch was finished" : known.c_str()});
  }
  /// Of a temporary: a copy, for `for (double loss : model.fit(train)["loss"])`.
  std::vector<double> operator[](std::string_view name) const&& { return (*this)[name]; }
  bool contains(std::string_view name) const {
    for (const auto& entry : values_)
      if (entry.first == name) return true;
    return false;
  }
  /// In the order of the logs.
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : values_) result.push_back(entry.first);
    return result;
  }

  void on_train_begin(const Logs&) override {
    epoch.clear();
    values_.clear();
  }
  [[gnu::cold]] void on_epoch_end(int number, const Logs& logs) override {
    epoch.push_back(number);
    for (const auto& [name, value] : logs) values_of(name).push_back(value);
  }

 private:
  [[gnu::cold]] std::vector<double>& values_of(const std::string& name) {
    for (auto& [key, values] : values_)
      if (key == name) return values;
    return values_.emplace_back(name, std::vector<double>{}).second;
  }

  std::vector<std::pair<std::string, std::vector<double>>> values_;
};

}  // namespace lockstep
