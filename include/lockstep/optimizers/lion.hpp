/// \file
/// Lion: steps of equal size in the direction of the momentum's sign.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/optimizers/schedule.hpp"
#include "lockstep/optimizers/update_options.hpp"

namespace lockstep {

/// One update of Lion. Slot: the momentum.
struct LionOp {
  double rate = 0.001, beta_1 = 0.9, beta_2 = 0.99;

  constexpr std::size_t slot_count() const { return 1; }

  template <class T>
  struct Rule {
    T rate, beta_1, rest_1, beta_2, rest_2;
    void operator()(T& w, T g, T& m) const {
      const T direction = m * beta_1 + g * rest_1;
      w -= direction > 0 ? rate : direction < 0 ? -rate : direction;  // propagates NaN
      m = m * beta_2 + g * rest_2;
    }
  };
  template <class T>
  constexpr Rule<T> rule() const {
    return {static_cast<T>(rate), static_cast<T>(beta_1), static_cast<T>(1 - beta_1),
            static_cast<T>(beta_2), static_cast<T>(1 - beta_2)};
  }
  bool operator==(const LionOp&) const = default;
};

/// Keras' Lion (Chen et al., 2023). Its rate is usually a tenth of Adam's.
///
///     w -= rate sign(beta_1 m + (1 - beta_1) g)
///     m = beta_2 m + (1 - beta_2) g
///
/// \code
///   ls::Lion{.learning_rate = 1e-4, .weight_decay = 0.1}
/// \endcode
struct Lion {
  static constexpr std::string_view name = "lion";
  Schedule learning_rate = 0.001;
  double beta_1 = 0.9, beta_2 = 0.99;
  double weight_decay = 0;
  UpdateOptions with = {};

  /// \throws UsageError if a beta is outside [0, 1); see also UpdateOptions.
  void check() const {
    detail::check_update_options(name, weight_decay, with);
    for (const double beta : {beta_1, beta_2})
      if (!(beta >= 0 && beta < 1))
        throw UsageError("lion beta {}: must be in [0, 1); 0.9 and 0.99 are usual", beta);
  }
  static constexpr std::size_t slot_count() { return 1; }
  static constexpr std::string_view slot_name(std::size_t) { return "momentum"; }
  /// The hyperparameters except the rate, which the processes of a job compare.
  std::array<std::pair<std::string_view, double>, 2> numbers() const {
    return {{{"beta_1", beta_1}, {"beta_2", beta_2}}};
  }
  LionOp op(double rate, std::uint64_t) const { return {rate, beta_1, beta_2}; }
};

}  // namespace lockstep
