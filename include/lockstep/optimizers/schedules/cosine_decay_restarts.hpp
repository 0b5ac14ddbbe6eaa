/// \file
/// Cosine decays with warm restarts.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>
#include <utility>

#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/optimizers/schedules/check_schedule.hpp"

namespace lockstep {

/// Keras' CosineDecayRestarts (SGDR: Loshchilov and Hutter, 2016): consecutive cosine decays to
/// alpha * initial_learning_rate. The first lasts first_decay_steps steps; each following one lasts
/// t_mul times as long as the previous one, and starts at m_mul times its height above that end.
/// \code
///   ls::SGD{.learning_rate = ls::CosineDecayRestarts{
///       .initial_learning_rate = 0.1, .first_decay_steps = 1000, .m_mul = 0.9}}
/// \endcode
struct CosineDecayRestarts {
  static constexpr std::string_view name = "cosine_decay_restarts";
  double initial_learning_rate = 0;
  std::uint64_t first_decay_steps = 0;
  double t_mul = 2, m_mul = 1, alpha = 0;

  /// \throws UsageError if first_decay_steps is not set, t_mul is below 1, or another parameter is
  /// negative.
  void check() const {
    detail::check_not_below_0(name, "initial_learning_rate", initial_learning_rate);
    detail::check_not_below_0(name, "m_mul", m_mul);
    detail::check_not_below_0(name, "alpha", alpha);
    detail::check_steps(name, "first_decay_steps", first_decay_steps);
    if (!(t_mul >= 1) || !detail::is_finite(t_mul))
      throw UsageError("{} t_mul {}: must be at least 1; 2 is usual", name, t_mul);
  }
  std::array<std::pair<std::string_view, double>, 5> numbers() const {
    return {{{"initial_learning_rate", initial_learning_rate},
             {"first_decay_steps", static_cast<double>(first_decay_steps)},
             {"t_mul", t_mul},
             {"m_mul", m_mul},
             {"alpha", alpha}}};
  }
  double operator()(std::uint64_t step) const {
    // Times in units of the first period: restart i begins at 1 + t_mul + ... + t_mul^(i - 1).
    const double at = static_cast<double>(step) / static_cast<double>(first_decay_steps);
    double restart = std::floor(at), part = at - restart;
    if (t_mul != 1) {
      const auto begin = [this](double i) { return (std::pow(t_mul, i) - 1) / (t_mul - 1); };
      restart = std::floor(std::log1p(at * (t_mul - 1)) / std::log(t_mul));
      if (at >= begin(restart + 1)) ++restart;  // correct the rounding of the logarithms
      if (at < begin(restart)) --restart;
      part = (at - begin(restart)) / std::pow(t_mul, restart);
    }
    const double cosine = (1 + std::cos(std::numbers::pi * part)) / 2;
    return initial_learning_rate * ((1 - alpha) * std::pow(m_mul, restart) * cosine + alpha);
  }
};

}  // namespace lockstep
