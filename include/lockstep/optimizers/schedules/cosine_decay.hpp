/// \file
/// A rate that falls along half a cosine, optionally after a linear warmup.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/optimizers/schedules/check_schedule.hpp"

namespace lockstep {

/// Keras' CosineDecay (Loshchilov and Hutter, 2016), with r = initial_learning_rate:
///
///     r ((1 - alpha) (1 + cos(pi step / decay_steps)) / 2 + alpha)    before decay_steps
///     alpha r                                                         from there on
///
/// With a `warmup_target` the rate first rises linearly from initial_learning_rate to it, in
/// warmup_steps steps; then r is the target, and steps are counted from the end of the warmup.
/// \code
///   ls::SGD{.learning_rate = ls::CosineDecay{.initial_learning_rate = 0, .decay_steps = 1000,
///                                            .warmup_target = 0.1, .warmup_steps = 100}}
/// \endcode
struct CosineDecay {
  static constexpr std::string_view name = "cosine_decay";
  double initial_learning_rate = 0;
  std::uint64_t decay_steps = 0;
  double alpha = 0;
  std::optional<double> warmup_target = {};
  std::uint64_t warmup_steps = 0;

  /// \throws UsageError if decay_steps is not set, warmup_steps is set without a target, or a rate
  /// or alpha is negative.
  void check() const {
    detail::check_not_below_0(name, "initial_learning_rate", initial_learning_rate);
    detail::check_not_below_0(name, "warmup_target", warmup_target.value_or(0));
    detail::check_not_below_0(name, "alpha", alpha);
    detail::check_steps(name, "decay_steps", decay_steps);
    detail::check_steps(name, "warmup_steps", warmup_steps, 0);
    if (warmup_steps > 0 && !warmup_target)
      throw UsageError("{}: {} warmup_steps without a warmup_target; set it", name, warmup_steps);
  }
  /// The parameters; a missing target is -1.
  std::array<std::pair<std::string_view, double>, 5> numbers() const {
    return {{{"initial_learning_rate", initial_learning_rate},
             {"decay_steps", static_cast<double>(decay_steps)},
             {"alpha", alpha},
             {"warmup_target", warmup_target.value_or(-1)},
             {"warmup_steps", static_cast<double>(warmup_steps)}}};
  }
  double operator()(std::uint64_t step) const {
    const double start = warmup_target.value_or(initial_learning_rate);
    if (step < warmup_steps)
      return initial_learning_rate + (start - initial_learning_rate) * static_cast<double>(step) /
                                         static_cast<double>(warmup_steps);
    const double part = static_cast<double>(std::min(step - warmup_steps, decay_steps)) /
                        static_cast<double>(decay_steps);
    const double cosine = (1 + std::cos(std::numbers::pi * part)) / 2;
    return start * ((1 - alpha) * cosine + alpha);
  }
};

}  // namespace lockstep
