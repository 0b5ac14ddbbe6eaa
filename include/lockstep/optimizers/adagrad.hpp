/// \file
/// Adagrad: gradients divided by the root of the sum of all past squared gradients. Invariant: as
/// in Keras, epsilon is inside the root.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/optimizers/schedule.hpp"
#include "lockstep/optimizers/update_options.hpp"

namespace lockstep {

/// One update of Adagrad. Slot: the sum of squared gradients.
struct AdagradOp {
  double rate = 0.001, epsilon = 1e-7;

  constexpr std::size_t slot_count() const { return 1; }

  template <class T>
  struct Rule {
    T rate, epsilon;
    void operator()(T& w, T g, T& sum) const {
      sum += g * g;
      w -= rate * g / std::sqrt(sum + epsilon);
    }
  };
  template <class T>
  constexpr Rule<T> rule() const {
    return {static_cast<T>(rate), static_cast<T>(epsilon)};
  }
  bool operator==(const AdagradOp&) const = default;
};

/// Keras' Adagrad (Duchi et al., 2011): a += g^2, w -= rate g / sqrt(a + epsilon), where a starts
/// at initial_accumulator_value.
/// \code
///   ls::Adagrad{.learning_rate = 0.01}
/// \endcode
struct Adagrad {
  static constexpr std::string_view name = "adagrad";
  Schedule learning_rate = 0.001;
  double initial_accumulator_value = 0.1, epsilon = 1e-7;
  double weight_decay = 0;
  UpdateOptions with = {};

  /// \throws UsageError if the initial value is negative or epsilon is not positive; see also
  /// UpdateOptions.
  void check() const {
    detail::check_update_options(name, weight_decay, with);
    if (!(initial_accumulator_value >= 0) || !detail::is_finite(initial_accumulator_value))
      throw UsageError("adagrad initial_accumulator_value {}: must not be negative; 0.1 is usual",
                       initial_accumulator_value);
    detail::check_epsilon(name, epsilon);
  }
  static constexpr std::size_t slot_count() { return 1; }
  static constexpr std::string_view slot_name(std::size_t) { return "accumulator"; }
  double slot_start(std::size_t) const { return initial_accumulator_value; }
  bool skips_zeros() const { return weight_decay == 0; }
  /// The hyperparameters except the rate, which the processes of a job compare.
  std::array<std::pair<std::string_view, double>, 2> numbers() const {
    return {{{"initial_accumulator_value", initial_accumulator_value}, {"epsilon", epsilon}}};
  }
  AdagradOp op(double rate, std::uint64_t) const { return {rate, epsilon}; }
};

}  // namespace lockstep
