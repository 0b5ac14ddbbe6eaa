/// \file
/// The counts of Precision and Recall. Invariant: a prediction is positive if it is above the
/// threshold, a target if it is not 0.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/concepts/metric.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers/finite.hpp"

namespace lockstep {

/// One example. State: true positives, false positives, false negatives, all elements.
template <class Target>
struct BinaryCountsOp {
  using target_type = Target;
  std::size_t elements = 1;
  double threshold = 0.5;
  std::size_t positions = 1;

  constexpr std::size_t rows() const { return positions; }
  constexpr BinaryCountsOp row() const { return {elements / positions, threshold, 1}; }
  constexpr std::size_t size() const { return elements; }
  constexpr std::size_t target_size() const { return elements; }

  template <class T>
  void example(const T* p, const target_as<Target, T>* t, double* state, double weight = 1) const {
    const T limit = static_cast<T>(threshold);
    for (std::size_t k = 0; k < elements; ++k) {
      const bool predicted = p[k] > limit, actual = t[k] != 0;
      state[0] += predicted && actual ? weight : 0;
      state[1] += predicted && !actual ? weight : 0;
      state[2] += !predicted && actual ? weight : 0;
    }
    state[3] += weight * static_cast<double>(elements);
  }
};

namespace detail {

/// Whether targets are binary: real values of the predictions' shape, or one label for one output
/// at each position.
template <class Target>
constexpr bool is_binary(Shape out) {
  return std::same_as<Target, float> || (std::same_as<Target, std::int32_t> && out.channels() == 1);
}

/// \throws UsageError if a metric's threshold is not finite.
inline void check_threshold(std::string_view metric, double threshold) {
  if (!is_finite(threshold))
    throw UsageError("{} threshold {}: must be finite; 0.5 for probabilities, 0 for logits", metric,
                     threshold);
}

}  // namespace detail
}  // namespace lockstep
