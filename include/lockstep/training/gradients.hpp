/// \file
/// The gradients of one batch, between their computation and the update.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/training/parameters.hpp"

namespace lockstep {

/// The gradients of the loss with respect to all trainable parameters: means over the examples of
/// the global batch, equal in all processes of a job. The penalties of regularizers are not
/// included: `model.apply` adds them. A program may change the values, in all processes alike.
/// \code
///   auto gradients = model.gradients_of(batch);
///   for (float& g : gradients["dense/kernel"]) g = std::clamp(g, -0.1f, 0.1f);
///   model.apply(gradients);
/// \endcode
template <class T>
class Gradients {
 public:
  Gradients() = default;
  /// Made by `model.gradients_of`. `rate`: the learning rate on which the processes agree.
  Gradients(std::vector<T> values, std::span<const detail::NamedParameter> parameters, double rate,
            Logs logs)
      : values_(std::move(values)), parameters_(parameters), rate_(rate), logs_(std::move(logs)) {}

  /// Those of one parameter. \throws UsageError for an unknown or non-trainable one.
  std::span<T> operator[](std::string_view name) {
    return std::span(values_).subspan(at(name).offset, at(name).size());
  }
  std::span<const T> operator[](std::string_view name) const {
    return std::span(values_).subspan(at(name).offset, at(name).size());
  }
  /// Those of all parameters, one after the other; `model.parameters()` has the offsets.
  std::span<T> values() { return values_; }
  std::span<const T> values() const { return values_; }

  /// The loss, penalties included, and the metrics of the batch; of a loss of the program's own
  /// only the penalties.
  const Logs& logs() const { return logs_; }
  /// The learning rate that `apply` uses.
  double learning_rate() const { return rate_; }

  /// Euclidean norm of all values.
  double norm() const {
    double squares = 0;
    for (const T v : values_) squares += static_cast<double>(v) * static_cast<double>(v);
    return std::sqrt(squares);
  }
  Gradients& operator*=(double factor) {
    for (T& v : values_) v = static_cast<T>(static_cast<double>(v) * factor);
    return *this;
  }
  /// Adds the gradients of another batch, or of another model of the same network.
  /// \throws UsageError for another number of values.
  Gradients& operator+=(const Gradients& other) {
    if (other.values_.size() != values_.size())
      throw UsageError("gradients: cannot add {} values to {}; add those of the same network",
                       other.values_.size(), values_.size());
    std::transform(values_.begin(), values_.end(), other.values_.begin(), values_.begin(),
                   [](T a, T b) { return a + b; });
    return *this;
  }

 private:
  ParameterInfo at(std::string_view name) const {
    return detail::trainable_parameter_named(parameters_, name);
  }

  std::vector<T> values_;
  std::span<const detail::NamedParameter> parameters_;
  double rate_ = 0;
  Logs logs_;
};

}  // namespace lockstep
