/// \file
/// The learning rate as a function of the step. Invariant: every value returned is finite and not
/// negative.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers/finite.hpp"

namespace lockstep {

/// A schedule's name and parameters, such as "exponential_decay, initial_learning_rate 0.1,
/// decay_steps 100". Each number has the fewest digits that parse to the same value.
template <class Numbers>
std::string describe_schedule(std::string_view name, const Numbers& numbers) {
  std::string result(name);
  for (const auto& [what, value] : numbers) {
    char digits[32];
    (result += ", ").append(what) += ' ';
    result.append(digits, std::to_chars(digits, digits + 32, value).ptr);
  }
  return result;
}

/// A learning rate: a number, one of Keras' schedules, or a function of the step. Steps are counted
/// from 0, as in Keras' schedules.
///
/// The conversions are implicit, so that optimizers accept all of them without being templates:
/// \code
///   ls::SGD{.learning_rate = 0.01};
///   ls::SGD{.learning_rate = ls::CosineDecay{.initial_learning_rate = 0.1, .decay_steps = 1000}};
///   ls::SGD{.learning_rate = [](std::uint64_t step) { return step < 1000 ? 0.1 : 0.01; }};
/// \endcode
class Schedule {
 public:
  /// A constant rate. \throws UsageError if it is negative or not finite.
  template <class Number>
    requires std::is_arithmetic_v<Number>
  Schedule(Number rate) : constant_(static_cast<double>(rate)) {
    if (!is_rate(constant_)) throw_bad_rate(constant_, "");
  }

  /// A function `double(std::uint64_t step)`. Calls its `check()` if it has one; the processes of a
  /// job compare its `description()`, or `name` and `numbers()`, if it has them. \throws what check() throws.
  template <class Function>
    requires(!std::is_arithmetic_v<std::remove_cvref_t<Function>> &&
             !std::same_as<std::remove_cvref_t<Function>, Schedule> &&
             std::is_invocable_r_v<double, const std::remove_cvref_t<Function>&, std::uint64_t>)
  Schedule(Function&& function) : function_(function) {
    if constexpr (requires { function.check(); }) function.check();
    if constexpr (requires { function.description(); })
      description_ = function.description();
    else if constexpr (requires { function.numbers(); })
      description_ = describe_schedule(function.name, function.numbers());
    else
      description_ = "a function";
  }

  // Compiled once: optimizers are copied and moved in many places.
  LOCKSTEP_COLD_DECL Schedule(const Schedule& other);
  LOCKSTEP_COLD_DECL Schedule(Schedule&& other) noexcept;
  LOCKSTEP_COLD_DECL Schedule& operator=(Schedule other) noexcept;
  LOCKSTEP_COLD_DECL ~Schedule();

  /// The rate of a step. \throws UsageError if the function returns a negative or non-finite value.
  LOCKSTEP_DECL double operator()(std::uint64_t step) const;

  /// Whether the rate is the same in all steps.
  bool is_constant() const { return !function_; }
  /// The schedule's name and parameters, or "a function"; empty for a constant.
  const std::string& description() const { return description_; }

 private:
  static bool is_rate(double rate) { return detail::is_finite(rate) && rate >= 0; }
  [[noreturn]] LOCKSTEP_COLD_DECL static void throw_bad_rate(double rate, std::string_view when);

  double constant_ = 0;
  std::function<double(std::uint64_t)> function_;
  std::string description_;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/optimizers/schedule.ipp"
#endif
