/// \file
/// The learning rate as a function of the step. Invariant: every value that it gives is finite and
/// not negative.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep {

/// A learning rate: a number, or a function of the step. Steps are counted from 0, as Keras'
/// schedules count them.
///
/// It is made implicitly, so that optimizers are no templates and take either:
/// \code
///   ls::SGD{.learning_rate = 0.01};
///   ls::SGD{.learning_rate = [](std::uint64_t step) { return step < 1000 ? 0.1 : 0.01; }};
/// \endcode
class Schedule {
 public:
  /// A constant rate. \throws UsageError if it is negative or not finite.
  template <class Number>
  requires std::is_arithmetic_v<Number> Schedule(Number rate)
      : constant_(checked(static_cast<double>(rate), "")) {}

  /// A function `double(std::uint64_t step)`.
  template <class Function>
  requires(!std::is_arithmetic_v<std::remove_cvref_t<Function>> &&
           !std::same_as<std::remove_cvref_t<Function>, Schedule> &&
           std::is_invocable_r_v<double, const std::remove_cvref_t<Function>&, std::uint64_t>)
      Schedule(Function&& function)
      : function_(std::forward<Function>(function)) {}

  /// The rate of a step. \throws UsageError if the function gives a negative or not finite number.
  double operator()(std::uint64_t step) const {
    return function_ ? checked(function_(step), " in step " + std::to_string(step)) : constant_;
  }

  /// Whether the rate is the same in all steps.
  bool is_constant() const { return !function_; }

 private:
  static double checked(double rate, const std::string& when) {
    if (!std::isfinite(rate) || rate < 0)
      throw UsageError({"learning rate ", rate, when,
                        ": must be a finite number that is not negative; give a smaller positive "
                        "one such as 0.01"});
    return rate;
  }

  double constant_ = 0;
  std::function<double(std::uint64_t)> function_;
};

}  // namespace lockstep
