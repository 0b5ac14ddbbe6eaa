/// \file
/// Adafactor: the second moment of a matrix is kept as means over rows and columns. Invariant: what
/// depends on the step alone is computed in double, once per update.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/optimizers/schedule.hpp"
#include "lockstep/optimizers/update_options.hpp"

namespace lockstep {

/// One update of Adafactor; `rate` is at most 1 / sqrt(t). Needs whole tensors. Slots: the means over
/// rows, or the second moment of a vector; the means over columns.
struct AdafactorOp {
  static constexpr bool per_tensor = true;
  double rate = 0.001, beta_2 = 0, epsilon_1 = 1e-30, epsilon_2 = 1e-3, clip_threshold = 1;
  bool operator==(const AdafactorOp&) const = default;
};

/// Keras' Adafactor (Shazeer and Stern, 2018). t is the number of the update, counted from 1, and
/// rms(x) the root of the mean square of all elements.
///
///     s = g^2 + epsilon_1
///     b = 1 - t^beta_2_decay
///     r = b r + (1 - b) mean of s over the last axis      of a tensor with two axes or more
///     c = b c + (1 - b) mean of s over the axis before
///     v = r c / mean of r
///     v = b v + (1 - b) s                                 of a vector
///     u = g / sqrt(v)
///     w -= max(epsilon_2, rms(w)) min(rate, 1 / sqrt(t)) u / max(1, rms(u) / clip_threshold)
///
/// A matrix with m rows and n columns needs m + n numbers instead of the m n of one of Adam's slots.
/// Keras' `relative_step` changes nothing there, since the rate is bounded by 1 / sqrt(t) with and without it.
/// On GPUs there is no kernel.
/// \code
///   ls::Adafactor{.learning_rate = 1e-2}
/// \endcode
struct Adafactor {
  static constexpr std::string_view name = "adafactor";
  Schedule learning_rate = 0.001;
  double beta_2_decay = -0.8, epsilon_1 = 1e-30, epsilon_2 = 1e-3, clip_threshold = 1;
  double weight_decay = 0;
  UpdateOptions with = {};

  /// \throws UsageError if beta_2_decay is not negative, or another number not positive; see also
  /// UpdateOptions.
  void check() const {
    detail::check_update_options(name, weight_decay, with);
    detail::require(beta_2_decay < 0 && detail::is_finite(beta_2_decay), name, " beta_2_decay ",
                    beta_2_decay, ": must be below 0; -0.8 is usual");
    const auto above_0 = [](const char* what, double value, const char* remedy) {
      detail::require(value > 0 && detail::is_finite(value), name, what, value, remedy);
    };
    above_0(" epsilon_1 ", epsilon_1, ": must be above 0; 1e-30 is usual");
    above_0(" epsilon_2 ", epsilon_2, ": must be above 0; 1e-3 is usual");
    above_0(" clip_threshold ", clip_threshold, ": must be above 0; 1 is usual");
  }
  static constexpr std::size_t slot_count() { return 2; }
  static constexpr std::string_view slot_name(std::size_t i) {
    return i == 0 ? "velocity_rows" : "velocity_columns";
  }
  ParameterRule rule_of(std::string_view, const Shape& shape) const {
    if (shape.rank < 2) return {{shape.size()}, weight_decay};
    const auto rows = static_cast<std::size_t>(shape[shape.rank - 2]);
    const auto columns = static_cast<std::size_t>(shape.channels());
    return {{shape.size() / columns, shape.size() / rows}, weight_decay};
  }
  /// The hyperparameters except the rate, which the processes of a job compare.
  std::array<std::pair<std::string_view, double>, 4> numbers() const {
    return {{{"beta_2_decay", beta_2_decay},
             {"epsilon_1", epsilon_1},
             {"epsilon_2", epsilon_2},
             {"clip_threshold", clip_threshold}}};
  }
  AdafactorOp op(double rate, std::uint64_t step) const {
    const auto t = static_cast<double>(step);
    return {std::min(rate, 1 / std::sqrt(t)), 1 - std::pow(t, beta_2_decay), epsilon_1, epsilon_2,
            clip_threshold};
  }
};

static_assert(Optimizer<Adafactor> && HasParameterRules<Adafactor>);

}  // namespace lockstep
