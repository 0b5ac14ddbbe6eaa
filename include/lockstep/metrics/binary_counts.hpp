/// \file
/// What Precision and Recall count. Invariant: an element is a yes if its prediction
/// is above the threshold; its target if it is not 0.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/concepts/metric.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/finite.hpp"

namespace lockstep {

/// One row. State: right yeses, wrong yeses, missed yeses, all elements.
template <class Target>
struct BinaryCountsOp {
  using target_type = Target;
  std::size_t elements = 1;
  double threshold = 0.5;

  constexpr std::size_t size() const { return elements; }
  constexpr std::size_t target_size() const { return elements; }

  template <class T>
  void example(const T* p, const target_as<Target, T>* t, double* state, double weight = 1) const {
    const T limit = static_cast<T>(threshold);
    for (std::size_t k = 0; k < elements; ++k) {
      const bool said = p[k] > limit, is = t[k] != 0;
      state[0] += said && is ? weight : 0;
      state[1] += said && !is ? weight : 0;
      state[2] += !said && is ? weight : 0;
    }
    state[3] += weight * static_cast<double>(elements);
  }
};

namespace detail {

/// Targets of the predictions' shape, or one label for one output.
template <class Target>
constexpr bool is_binary(Shape out) {
  return std::same_as<Target, float> || (std::same_as<Target, std::int32_t> && out.size() == 1);
}

/// \throws UsageError if a metric's threshold is no number.
inline void check_threshold(std::string_view metric, double threshold) {
  if (!is_finite(threshold))
    throw UsageError("{} threshold {}: must be a number; 0.5 for probabilities, 0 for logits",
                     metric, threshold);
}

}  // namespace detail
}  // namespace lockstep
