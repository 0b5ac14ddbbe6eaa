/// \file
/// Adadelta: steps with a per-element scale, the RMS of past updates over the RMS of gradients.
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

/// One update of Adadelta. Slots: the running averages of squared gradients and squared updates.
struct AdadeltaOp {
  double rate = 0.001, rho = 0.95, epsilon = 1e-7;

  constexpr std::size_t slot_count() const { return 2; }

  template <class T>
  struct Rule {
    T rate, rho, rest, epsilon;
    void operator()(T& w, T g, T& squares, T& updates) const {
      squares = rho * squares + rest * (g * g);
      const T update = std::sqrt(updates + epsilon) * g / std::sqrt(squares + epsilon);
      updates = rho * updates + rest * (update * update);
      w -= rate * update;
    }
  };
  template <class T>
  constexpr Rule<T> rule() const {
    return {static_cast<T>(rate), static_cast<T>(rho), static_cast<T>(1 - rho),
            static_cast<T>(epsilon)};
  }
  bool operator==(const AdadeltaOp&) const = default;
};

/// Keras' Adadelta (Zeiler, 2012). The paper's rate is 1.
///
///     a = rho a + (1 - rho) g^2
///     d = sqrt(b + epsilon) g / sqrt(a + epsilon)
///     b = rho b + (1 - rho) d^2
///     w -= rate d
///
/// \code
///   ls::Adadelta{.learning_rate = 1.0}
/// \endcode
struct Adadelta {
  static constexpr std::string_view name = "adadelta";
  Schedule learning_rate = 0.001;
  double rho = 0.95, epsilon = 1e-7;
  double weight_decay = 0;
  UpdateOptions with = {};

  /// \throws UsageError if rho is outside [0, 1) or epsilon is not positive; see also
  /// UpdateOptions.
  void check() const {
    detail::check_update_options(name, weight_decay, with);
    if (!(rho >= 0 && rho < 1))
      throw UsageError("adadelta rho {}: must be in [0, 1); 0.95 is usual", rho);
    detail::check_epsilon(name, epsilon);
  }
  static constexpr std::size_t slot_count() { return 2; }
  static constexpr std::string_view slot_name(std::size_t i) {
    return i == 0 ? "accumulated_grad" : "accumulated_delta_var";
  }
  /// The hyperparameters except the rate, which the processes of a job compare.
  std::array<std::pair<std::string_view, double>, 2> numbers() const {
    return {{{"rho", rho}, {"epsilon", epsilon}}};
  }
  AdadeltaOp op(double rate, std::uint64_t) const { return {rate, rho, epsilon}; }
};

}  // namespace lockstep
