/// \file
/// The values passed to callbacks. Invariants: names keep the order in which they were first set;
/// setting an existing name allocates nothing, so the training loop may do it every step.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

/// An ordered map from name to value: Keras' `logs` argument of callbacks.
///
/// In a batch hook the value is Keras' running mean over the epoch so far, and `step(name)` the
/// value of this batch alone. In an epoch hook both are the value of the epoch.
/// \code
///   void on_train_batch_end(std::size_t batch, const lockstep::Logs& logs) override {
///     for (const auto& [name, value] : logs) fmt::print("{} {}\n", name, value);
///     worst_ = std::max(worst_, logs.step("loss"));
///   }
/// \endcode
class Logs {
 public:
  using value_type = std::pair<std::string, double>;
  using const_iterator = std::vector<value_type>::const_iterator;

  /// Sets both the value and the value of this batch alone.
  void set(std::string_view name, double value) { set(name, value, value); }
  /// Sets the running mean and the value of this batch alone.
  LOCKSTEP_DECL void set(std::string_view name, double value, double step);
  LOCKSTEP_DECL void clear();

  /// The value of `name`. \throws UsageError, which lists the known names, if `name` is unknown.
  double operator[](std::string_view name) const { return values_[at(name)].second; }
  /// The value of this batch alone. \throws UsageError as `operator[]`.
  double step(std::string_view name) const { return steps_[at(name)]; }
  /// The value, or empty if `name` is unknown.
  LOCKSTEP_DECL std::optional<double> get(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name).has_value(); }

  std::size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  const_iterator begin() const { return values_.begin(); }
  const_iterator end() const { return values_.end(); }

 private:
  LOCKSTEP_DECL std::optional<std::size_t> find(std::string_view name) const;
  // Runs once per name.
  LOCKSTEP_COLD_DECL void add(std::string_view name, double value, double step);
  LOCKSTEP_COLD_DECL std::size_t at(std::string_view name) const;

  std::vector<value_type> values_;
  std::vector<double> steps_;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/logs.ipp"
#endif
