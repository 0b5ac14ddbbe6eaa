/// \file
/// Adam with Nesterov momentum. Invariant: everything that depends on the number of the update is
/// computed in double, once per update.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "lockstep/optimizers/adam.hpp"

namespace lockstep {

/// One update of Nadam: w -= (of_m m + of_g g) / (sqrt(v) * root + epsilon). Slots: the first and
/// second moments.
struct NadamOp {
  double of_m = 0, of_g = 0, root = 1, beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7;

  constexpr std::size_t slot_count() const { return 2; }

  template <class T>
  struct Rule {
    T of_m, of_g, root, rest_1, rest_2, epsilon;
    void operator()(T& w, T g, T& m, T& v) const {
      m += (g - m) * rest_1;
      v += (g * g - v) * rest_2;
      w -= (of_m * m + of_g * g) / (std::sqrt(v) * root + epsilon);
    }
  };
  template <class T>
  constexpr Rule<T> rule() const {
    return {static_cast<T>(of_m),       static_cast<T>(of_g),       static_cast<T>(root),
            static_cast<T>(1 - beta_1), static_cast<T>(1 - beta_2), static_cast<T>(epsilon)};
  }
  bool operator==(const NadamOp&) const = default;
};

/// Keras' Nadam (Dozat, 2015). m and v are Adam's moments, t is the number of the update, counted
/// from 1, u(t) = beta_1 (1 - 0.96^t / 2), and U(t) = u(1) u(2) ... u(t).
///
///     w -= rate (u(t + 1) m / (1 - U(t + 1)) + (1 - u(t)) g / (1 - U(t)))
///          / (sqrt(v / (1 - beta_2^t)) + epsilon)
///
/// \code
///   ls::Nadam{.learning_rate = 1e-3}
/// \endcode
struct Nadam {
  static constexpr std::string_view name = "nadam";
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
  static constexpr std::string_view slot_name(std::size_t i) { return detail::adam_slot_name(i); }
  /// The hyperparameters except the rate, which the processes of a job compare.
  std::array<std::pair<std::string_view, double>, 3> numbers() const {
    return {{{"beta_1", beta_1}, {"beta_2", beta_2}, {"epsilon", epsilon}}};
  }
  NadamOp op(double rate, std::uint64_t step) const {
    const auto t = static_cast<double>(step);
    const double now = factor(t), next = factor(t + 1), product = product_of_factors(step);
    return {rate * next / (1 - product * next),
            rate * (1 - now) / (1 - product),
            1 / std::sqrt(1 - std::pow(beta_2, t)),
            beta_1,
            beta_2,
            epsilon};
  }

 private:
  /// u(t).
  double factor(double t) const { return beta_1 * (1 - 0.5 * std::pow(0.96, t)); }
  /// U(step). The loop ends after 1000 factors, where 0.96^t no longer changes 1 - 0.96^t / 2.
  double product_of_factors(std::uint64_t step) const {
    double product = 1, power = 1;
    for (std::uint64_t i = 0; i < step && i < 1000; ++i) {
      power *= 0.96;
      product *= 1 - 0.5 * power;
    }
    return product * std::pow(beta_1, static_cast<double>(step));
  }
};

}  // namespace lockstep
