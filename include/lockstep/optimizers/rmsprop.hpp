/// \file
/// RMSprop: gradients divided by the root of a running average of their squares. Invariant: as in
/// Keras, epsilon is inside the root.
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

/// One update of RMSprop.
struct RMSpropOp {
  double rate = 0.001, rho = 0.9, momentum = 0, epsilon = 1e-7;
  bool centered = false;

  constexpr std::size_t slot_count() const {
    return std::size_t{1} + (momentum > 0 ? 1 : 0) + (centered ? 1 : 0);
  }

  /// Slots: v, then the momentum if it is above 0, then the mean gradient if `centered`.
  template <class T>
  struct Rule {
    T rate, rho, rest, momentum, epsilon;
    bool centered;
    void operator()(T& w, T g, T& v) const {
      v = rho * v + rest * (g * g);
      w -= rate * g / std::sqrt(v + epsilon);
    }
    void operator()(T& w, T g, T& v, T& other) const {
      v = rho * v + rest * (g * g);
      if (centered) {
        other = rho * other + rest * g;
        w -= rate * g / std::sqrt(v - other * other + epsilon);
      } else {
        other = momentum * other + rate * g / std::sqrt(v + epsilon);
        w -= other;
      }
    }
    void operator()(T& w, T g, T& v, T& m, T& mean) const {
      v = rho * v + rest * (g * g);
      mean = rho * mean + rest * g;
      m = momentum * m + rate * g / std::sqrt(v - mean * mean + epsilon);
      w -= m;
    }
  };
  template <class T>
  constexpr Rule<T> rule() const {
    return {static_cast<T>(rate),     static_cast<T>(rho),     static_cast<T>(1 - rho),
            static_cast<T>(momentum), static_cast<T>(epsilon), centered};
  }
  bool operator==(const RMSpropOp&) const = default;
};

/// Keras' RMSprop (Hinton, 2012).
///
///     v = rho v + (1 - rho) g^2
///     d = rate g / sqrt(v + epsilon)         centered: a = rho a + (1 - rho) g, v - a^2 for v
///     w -= d                                 momentum u: m = u m + d, w -= m
///
/// \code
///   ls::RMSprop{.learning_rate = 1e-3, .momentum = 0.9}
/// \endcode
struct RMSprop {
  static constexpr std::string_view name = "rmsprop";
  Schedule learning_rate = 0.001;
  double rho = 0.9, momentum = 0, epsilon = 1e-7;
  bool centered = false;
  double weight_decay = 0;
  UpdateOptions with = {};

  /// \throws UsageError if rho or the momentum is outside [0, 1) or epsilon is not positive; see
  /// also UpdateOptions.
  void check() const {
    detail::check_update_options(name, weight_decay, with);
    for (const double part : {rho, momentum})
      if (!(part >= 0 && part < 1))
        throw UsageError("rmsprop rho or momentum {}: must be in [0, 1); 0.9 is usual", part);
    detail::check_epsilon(name, epsilon);
  }
  std::size_t slot_count() const { return op(0, 1).slot_count(); }
  std::string_view slot_name(std::size_t i) const {
    return i == 0 ? "velocity" : i == 1 && momentum > 0 ? "momentum" : "average_gradient";
  }
  /// The hyperparameters except the rate, which the processes of a job compare.
  std::array<std::pair<std::string_view, double>, 4> numbers() const {
    return {{{"rho", rho},
             {"momentum", momentum},
             {"epsilon", epsilon},
             {"centered", centered ? 1 : 0}}};
  }
  RMSpropOp op(double rate, std::uint64_t) const {
    return {rate, rho, momentum, epsilon, centered};
  }
};

}  // namespace lockstep
