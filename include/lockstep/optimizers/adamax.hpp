/// \file
/// Adamax: Adam with the infinity norm of past gradients instead of the second moment. Invariant:
/// the bias correction is folded into the rate, in double, once per update.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "lockstep/optimizers/adam.hpp"

namespace lockstep {

/// One update of Adamax; `rate` includes the bias correction. Slots: the first moment and the norm.
struct AdamaxOp {
  double rate = 0.001, beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7;

  constexpr std::size_t slot_count() const { return 2; }

  template <class T>
  struct Rule {
    T rate, rest_1, beta_2, epsilon;
    void operator()(T& w, T g, T& m, T& u) const {
      const T size = std::abs(g), faded = beta_2 * u;
      m += (g - m) * rest_1;
      u = faded > size ? faded : size;
      w -= rate * m / (u + epsilon);
    }
  };
  template <class T>
  constexpr Rule<T> rule() const {
    return {static_cast<T>(rate), static_cast<T>(1 - beta_1), static_cast<T>(beta_2),
            static_cast<T>(epsilon)};
  }
  bool operator==(const AdamaxOp&) const = default;
};

/// Keras' Adamax (Kingma and Ba, 2014). t is the number of the update, counted from 1.
///
///     m += (g - m)(1 - beta_1)
///     u = max(beta_2 u, |g|)
///     w -= rate / (1 - beta_1^t) * m / (u + epsilon)
///
/// \code
///   ls::Adamax{.learning_rate = 2e-3}
/// \endcode
struct Adamax {
  static constexpr std::string_view name = "adamax";
  Schedule learning_rate = 0.001;
  double beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7;
  double weight_decay = 0;
  UpdateOptions with = {};

  /// \throws UsageError as Adam::check does.
  void check() const {
    detail::check_update_options(name, weight_decay, with);
    detail::check_adam(name, beta_1, beta_2, epsilon);
  }
  static constexpr std::size_t slot_count() { return 2; }
  static constexpr std::string_view slot_name(std::size_t i) {
    return i == 0 ? "momentum" : "norm";
  }
  /// The hyperparameters except the rate, which the processes of a job compare.
  std::array<std::pair<std::string_view, double>, 3> numbers() const {
    return {{{"beta_1", beta_1}, {"beta_2", beta_2}, {"epsilon", epsilon}}};
  }
  AdamaxOp op(double rate, std::uint64_t step) const {
    return {rate / (1 - std::pow(beta_1, static_cast<double>(step))), beta_1, beta_2, epsilon};
  }
};

}  // namespace lockstep
