/// \file
/// Exponential decay of the rate.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include "lockstep/optimizers/schedules/check_schedule.hpp"

namespace lockstep {

/// Keras' ExponentialDecay: initial_learning_rate * decay_rate^(step / decay_steps); with
/// `staircase` the quotient is rounded down.
/// \code
///   ls::SGD{.learning_rate = ls::ExponentialDecay{
///       .initial_learning_rate = 0.1, .decay_steps = 1000, .decay_rate = 0.96}}
/// \endcode
struct ExponentialDecay {
  static constexpr std::string_view name = "exponential_decay";
  double initial_learning_rate = 0;
  std::uint64_t decay_steps = 0;
  double decay_rate = 0;
  bool staircase = false;

  /// \throws UsageError if decay_steps or decay_rate is not set, or the rate is negative.
  void check() const {
    detail::check_not_below_0(name, "initial_learning_rate", initial_learning_rate);
    detail::check_steps(name, "decay_steps", decay_steps);
    detail::check_above_0(name, "decay_rate", decay_rate);
  }
  std::array<std::pair<std::string_view, double>, 4> numbers() const {
    return {{{"initial_learning_rate", initial_learning_rate},
             {"decay_steps", static_cast<double>(decay_steps)},
             {"decay_rate", decay_rate},
             {"staircase", staircase ? 1 : 0}}};
  }
  double operator()(std::uint64_t step) const {
    const double p = static_cast<double>(step) / static_cast<double>(decay_steps);
    return initial_learning_rate * std::pow(decay_rate, staircase ? std::floor(p) : p);
  }
};

}  // namespace lockstep
