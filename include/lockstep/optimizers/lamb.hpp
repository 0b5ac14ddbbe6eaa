/// \file
/// LAMB: Adam with a learning rate per parameter tensor, proportional to the tensor's norm.
/// Invariant: the bias correction is computed in double, once per update.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "lockstep/optimizers/adam.hpp"

namespace lockstep {

/// One update of Lamb. `of_m` and `root` are the bias corrections: the direction is
/// of_m m / (sqrt(v) * root + epsilon). Needs a kernel per tensor, because it uses tensor norms.
struct LambOp {
  static constexpr bool per_tensor = true;
  double rate = 0.001, of_m = 1, root = 1, beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7;
  bool operator==(const LambOp&) const = default;
};

/// Keras' Lamb (You et al., 2019). m and v are Adam's moments after bias correction; |w| and |d|
/// are the L2 norms of the whole parameter, whose quotient is 1 if either is 0.
///
///     d = m / (sqrt(v) + epsilon)
///     w -= rate |w| / |d| d
///
/// \code
///   ls::Lamb{.learning_rate = 1e-2, .weight_decay = 0.01}
/// \endcode
struct Lamb {
  static constexpr std::string_view name = "lamb";
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
  LambOp op(double rate, std::uint64_t step) const {
    const auto t = static_cast<double>(step);
    return {rate,
            1 / (1 - std::pow(beta_1, t)),
            1 / std::sqrt(1 - std::pow(beta_2, t)),
            beta_1,
            beta_2,
            epsilon};
  }
};

}  // namespace lockstep
