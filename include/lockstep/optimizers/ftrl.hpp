/// \file
/// FTRL-Proximal (follow the regularized leader), for sparse linear models.
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

/// One update of Ftrl; `l2` includes beta / (2 rate). Slots: the sum of squared gradients, and z.
struct FtrlOp {
  double rate = 0.001, power = 0.5, l1 = 0, l2 = 0, shrinkage = 0;

  constexpr std::size_t slot_count() const { return 2; }

  template <class T>
  struct Rule {
    T rate, power, l1, l2, shrinkage;
    void operator()(T& w, T g, T& squares, T& linear) const {
      const T sum = squares + g * g, root = std::pow(sum, power);
      linear += g + 2 * shrinkage * w - (root - std::pow(squares, power)) / rate * w;
      const T cut = linear < -l1 ? -l1 : linear > l1 ? l1 : linear;
      w = (cut - linear) / (root / rate + 2 * l2);
      squares = sum;
    }
  };
  template <class T>
  constexpr Rule<T> rule() const {
    return {static_cast<T>(rate), static_cast<T>(power), static_cast<T>(l1), static_cast<T>(l2),
            static_cast<T>(shrinkage)};
  }
  bool operator==(const FtrlOp&) const = default;
};

/// Keras' Ftrl (McMahan et al., 2013). p = -learning_rate_power, l1 and l2 are the regularization
/// strengths, l2' = l2 + beta / (2 rate), and n starts at initial_accumulator_value. The rate must
/// be positive in every step.
///
///     n' = n + g^2
///     z += g + 2 shrinkage w - (n'^p - n^p) / rate w
///     w = (clip(z, -l1, l1) - z) / (n'^p / rate + 2 l2')
///     n = n'
///
/// \code
///   ls::Ftrl{.learning_rate = 0.05, .l1_regularization_strength = 0.01}
/// \endcode
struct Ftrl {
  static constexpr std::string_view name = "ftrl";
  Schedule learning_rate = 0.001;
  double learning_rate_power = -0.5, initial_accumulator_value = 0.1;
  double l1_regularization_strength = 0, l2_regularization_strength = 0;
  double l2_shrinkage_regularization_strength = 0, beta = 0;
  double weight_decay = 0;
  UpdateOptions with = {};

  /// \throws UsageError if the power is positive or another number negative; see also
  /// UpdateOptions.
  void check() const {
    detail::check_update_options(name, weight_decay, with);
    if (!(learning_rate_power <= 0))
      throw UsageError("ftrl learning_rate_power {}: must not be positive; -0.5 is usual",
                       learning_rate_power);
    for (const auto& [what, value] : numbers())
      if (what != "learning_rate_power" && (!(value >= 0) || !detail::is_finite(value)))
        throw UsageError("ftrl {} {}: must be finite and not negative", what, value);
  }
  static constexpr std::size_t slot_count() { return 2; }
  static constexpr std::string_view slot_name(std::size_t i) {
    return i == 0 ? "accumulator" : "linear";
  }
  double slot_start(std::size_t i) const { return i == 0 ? initial_accumulator_value : 0; }
  /// The hyperparameters except the rate, which the processes of a job compare.
  std::array<std::pair<std::string_view, double>, 6> numbers() const {
    return {{{"learning_rate_power", learning_rate_power},
             {"initial_accumulator_value", initial_accumulator_value},
             {"l1_regularization_strength", l1_regularization_strength},
             {"l2_regularization_strength", l2_regularization_strength},
             {"l2_shrinkage_regularization_strength", l2_shrinkage_regularization_strength},
             {"beta", beta}}};
  }
  /// \throws UsageError if the rate is 0.
  FtrlOp op(double rate, std::uint64_t step) const {
    if (rate == 0)
      throw UsageError(
          "ftrl: learning rate 0 in update {}, and Ftrl divides by the rate; give a rate above 0",
          step);
    return {rate, -learning_rate_power, l1_regularization_strength,
            l2_regularization_strength + beta / (2 * rate), l2_shrinkage_regularization_strength};
  }
};

}  // namespace lockstep
