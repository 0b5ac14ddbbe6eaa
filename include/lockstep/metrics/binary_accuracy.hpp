/// \file
/// Share of right answers to yes-or-no questions.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "lockstep/metrics/binary_counts.hpp"

namespace lockstep {

/// Keras' BinaryAccuracy: the share of elements whose prediction is on the target's side of the
/// threshold; targets are 0 and 1. \code
///   ls::Model model{Net{}, strategy, ls::BinaryCrossentropy{.from_logits = true}, ls::Adam{},
///                   ls::BinaryAccuracy{.threshold = 0}};
/// \endcode
struct BinaryAccuracy {
  static constexpr std::string_view name = "binary_accuracy";
  static constexpr std::size_t state_size = 4;
  double threshold = 0.5;

  /// \throws UsageError if the threshold is no number.
  void check() const { detail::check_threshold(name, threshold); }
  /// For a job's processes to compare.
  std::array<std::pair<std::string_view, double>, 1> numbers() const {
    return {{{"threshold", threshold}}};
  }
  template <class Target>
  static constexpr bool accepts(Shape out) {
    return detail::is_binary<Target>(out);
  }
  template <class Target>
  constexpr BinaryCountsOp<Target> op(Shape out) const {
    return {out.size(), threshold};
  }
  double result(const double* state) const {
    return state[3] != 0 ? (state[3] - state[1] - state[2]) / state[3] : 0;
  }
};

}  // namespace lockstep
