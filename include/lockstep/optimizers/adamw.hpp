/// \file
/// Adam with decoupled weight decay.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "lockstep/optimizers/adam.hpp"

namespace lockstep {

/// Keras' AdamW (Loshchilov and Hutter, 2017): Adam with a weight decay of 0.004 by default. The
/// decay is decoupled from the gradient: w -= weight_decay * rate * w before each update.
/// \code
///   ls::AdamW{.learning_rate = 3e-4, .weight_decay = 0.01,
///             .with = {.exclude_from_weight_decay = {"bias", "gamma", "beta"}}}
/// \endcode
struct AdamW {
  static constexpr std::string_view name = "adamw";
  Schedule learning_rate = 0.001;
  double weight_decay = 0.004;
  double beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7;
  bool amsgrad = false;
  UpdateOptions with = {};

  /// \throws UsageError as Adam::check does.
  void check() const {
    detail::check_update_options(name, weight_decay, with);
    detail::check_adam(name, beta_1, beta_2, epsilon);
  }
  std::size_t slot_count() const { return amsgrad ? 3 : 2; }
  static constexpr std::string_view slot_name(std::size_t i) { return detail::adam_slot_name(i); }
  /// The hyperparameters except the rate and the decay, which the processes of a job compare.
  std::array<std::pair<std::string_view, double>, 4> numbers() const {
    return {{{"beta_1", beta_1},
             {"beta_2", beta_2},
             {"epsilon", epsilon},
             {"amsgrad", amsgrad ? 1 : 0}}};
  }
  AdamOp op(double rate, std::uint64_t step) const {
    return detail::adam_op(rate, step, beta_1, beta_2, epsilon, amsgrad);
  }
};

}  // namespace lockstep
