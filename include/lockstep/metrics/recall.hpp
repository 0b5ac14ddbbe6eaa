/// \file
/// True positives divided by actual positives.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "lockstep/metrics/binary_counts.hpp"

namespace lockstep {

/// Keras' Recall over all elements: true positives / actual positives, 0 if there are none. A
/// prediction above the threshold is positive; targets are 0 and 1.
/// \code
///   ls::Model model{Net{}, strategy, ls::BinaryCrossentropy{.from_logits = true}, ls::Adam{},
///                   ls::Recall{.threshold = 0}};
/// \endcode
struct Recall {
  static constexpr std::string_view name = "recall";
  static constexpr std::size_t state_size = 4;
  double threshold = 0.5;

  /// \throws UsageError if the threshold is not finite.
  void check() const { detail::check_threshold(name, threshold); }
  /// The options, which the processes of a job compare.
  std::array<std::pair<std::string_view, double>, 1> numbers() const {
    return {{{"threshold", threshold}}};
  }
  template <class Target>
  static constexpr bool accepts(Shape out) {
    return detail::is_binary<Target>(out);
  }
  template <class Target>
  constexpr BinaryCountsOp<Target> op(Shape out) const {
    return {out.size(), threshold, positions_of(out).size()};
  }
  double result(const double* state) const {
    const double actual = state[0] + state[2];
    return actual != 0 ? state[0] / actual : 0;
  }
};

}  // namespace lockstep
