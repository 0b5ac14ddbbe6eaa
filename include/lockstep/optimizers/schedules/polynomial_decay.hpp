/// \file
/// A rate that falls along a polynomial to its final value.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include "lockstep/optimizers/schedules/check_schedule.hpp"

namespace lockstep {

/// Keras' PolynomialDecay: (initial - end) * (1 - step / decay_steps)^power + end, and `end` from
/// decay_steps on. With `cycle`, decay_steps is replaced by its smallest multiple that is not below
/// the step, so that the rate rises again after each decay.
/// \code
///   ls::SGD{.learning_rate =
///               ls::PolynomialDecay{.initial_learning_rate = 0.1, .decay_steps = 1000}}
/// \endcode
struct PolynomialDecay {
  static constexpr std::string_view name = "polynomial_decay";
  double initial_learning_rate = 0;
  std::uint64_t decay_steps = 0;
  double end_learning_rate = 0.0001, power = 1;
  bool cycle = false;

  /// \throws UsageError if decay_steps is not set, power is not positive, or a rate is negative.
  void check() const {
    detail::check_not_below_0(name, "initial_learning_rate", initial_learning_rate);
    detail::check_not_below_0(name, "end_learning_rate", end_learning_rate);
    detail::check_steps(name, "decay_steps", decay_steps);
    detail::check_above_0(name, "power", power);
  }
  std::array<std::pair<std::string_view, double>, 5> numbers() const {
    return {{{"initial_learning_rate", initial_learning_rate},
             {"decay_steps", static_cast<double>(decay_steps)},
             {"end_learning_rate", end_learning_rate},
             {"power", power},
             {"cycle", cycle ? 1 : 0}}};
  }
  double operator()(std::uint64_t step) const {
    const double s = static_cast<double>(step), period = static_cast<double>(decay_steps);
    const double whole = cycle ? period * std::max(1.0, std::ceil(s / period)) : period;
    const double left = 1 - std::min(s, whole) / whole;
    return (initial_learning_rate - end_learning_rate) * std::pow(left, power) + end_learning_rate;
  }
};

}  // namespace lockstep
