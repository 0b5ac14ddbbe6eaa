/// \file
/// The iterations by which Muon replaces a matrix by the nearest one with orthogonal rows. Invariant:
/// an iteration is a fixed list of coefficients, so all replicas compute the same.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/core/error.hpp"

namespace lockstep {

/// One step of an iteration on a matrix X with at most as many rows as columns:
///
///     A = X X^T
///     X = a X + (b A + c A^2) X
///
/// Each singular value s becomes a s + b s^3 + c s^5.
struct QuinticStep {
  double a = 0, b = 0, c = 0;
  bool operator==(const QuinticStep&) const = default;
};

/// K. Jordan's coefficients, the same in each step. They raise small singular values fast and leave
/// all between about 0.7 and 1.2.
/// \code
///   ls::Muon{.iteration = ls::NewtonSchulz{.steps = 6}}
///   ls::Muon{.iteration = ls::NewtonSchulz{.a = 1.875, .b = -1.25, .c = 0.375, .steps = 12}}  // to 1
/// \endcode
struct NewtonSchulz {
  double a = 3.4445, b = -4.7750, c = 2.0315;
  std::uint64_t steps = 5;
  constexpr QuinticStep operator()(std::uint64_t) const { return {a, b, c}; }
};

/// The steps of an iteration: NewtonSchulz, or any type with `steps` and `operator()(i)`, the
/// QuinticStep of step i, counted from 0.
/// \code
///   struct Fading {
///     std::uint64_t steps = 6;
///     ls::QuinticStep operator()(std::uint64_t i) const {
///       return i < 4 ? ls::QuinticStep{3.4445, -4.7750, 2.0315} : ls::QuinticStep{1.875, -1.25, 0.375};
///     }
///   };
///   ls::Muon{.iteration = Fading{}}
/// \endcode
class MuonIteration {
 public:
  static constexpr std::size_t most_steps = 16;

  /// \throws UsageError for no step, and for more than 16.
  template <class Policy>
    requires requires(const Policy& policy, std::uint64_t i) {
      { policy.steps } -> std::convertible_to<std::uint64_t>;
      { policy(i) } -> std::same_as<QuinticStep>;
    }
  MuonIteration(const Policy& policy) {
    const std::uint64_t steps = policy.steps;
    if (steps < 1 || steps > most_steps)
      throw UsageError("muon: the iteration has {} steps; it must have 1 to {}, and 5 are usual",
                       steps, most_steps);
    count_ = static_cast<std::size_t>(steps);
    for (std::size_t i = 0; i < count_; ++i) step_[i] = policy(i);
  }

  std::span<const QuinticStep> steps() const { return {step_.data(), count_}; }
  bool operator==(const MuonIteration&) const = default;

 private:
  std::array<QuinticStep, most_steps> step_{};
  std::size_t count_ = 0;
};

}  // namespace lockstep
