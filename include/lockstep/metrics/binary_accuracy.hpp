/// \file
/// The fraction of correct binary predictions.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include "lockstep/concepts/metric.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/metrics/binary_counts.hpp"

namespace lockstep {

/// One example of BinaryAccuracy. State: correct elements, all elements.
template <class Target>
struct BinaryAccuracyOp {
  using target_type = Target;
  std::size_t elements = 1;
  double threshold = 0.5;
  std::size_t positions = 1;

  constexpr std::size_t rows() const { return positions; }
  constexpr BinaryAccuracyOp row() const { return {elements / positions, threshold, 1}; }
  constexpr std::size_t size() const { return elements; }
  constexpr std::size_t target_size() const { return elements; }

  template <class T>
  void example(const T* p, const target_as<Target, T>* t, double* state, double weight = 1) const {
    const T limit = static_cast<T>(threshold);
    for (std::size_t k = 0; k < elements; ++k)
      state[0] += t[k] == static_cast<target_as<Target, T>>(p[k] > limit) ? weight : 0;
    state[1] += weight * static_cast<double>(elements);
  }
};

/// Keras' BinaryAccuracy: the fraction of elements whose target equals the thresholded prediction,
/// 1 above the threshold and 0 otherwise. A target that is neither, such as 0.5, never matches.
/// \code
///   ls::Model model{Net{}, strategy, ls::BinaryCrossentropy{.from_logits = true}, ls::Adam{},
///                   ls::BinaryAccuracy{.threshold = 0}};
/// \endcode
struct BinaryAccuracy {
  static constexpr std::string_view name = "binary_accuracy";
  static constexpr std::size_t state_size = 2;
  static constexpr bool reads_mask = true;
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
  constexpr BinaryAccuracyOp<Target> op(Shape out) const {
    return {out.size(), threshold, positions_of(out).size()};
  }
  double result(const double* state) const { return state[1] != 0 ? state[0] / state[1] : 0; }
};

}  // namespace lockstep
