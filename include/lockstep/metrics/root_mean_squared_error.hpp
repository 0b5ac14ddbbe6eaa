/// \file
/// The root of the mean squared difference.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <string_view>

#include "lockstep/concepts/metric.hpp"

namespace lockstep {

/// One example of RootMeanSquaredError. State: the sum of squared differences, elements.
struct RootMeanSquaredErrorOp {
  using target_type = float;
  std::size_t elements = 1, positions = 1;

  constexpr std::size_t rows() const { return positions; }
  constexpr RootMeanSquaredErrorOp row() const { return {elements / positions, 1}; }
  constexpr std::size_t size() const { return elements; }
  constexpr std::size_t target_size() const { return elements; }

  template <class T>
  void example(const T* p, const T* t, double* state, double weight = 1) const {
    for (std::size_t k = 0; k < elements; ++k) {
      const double difference = static_cast<double>(p[k]) - static_cast<double>(t[k]);
      state[0] += weight * difference * difference;
    }
    state[1] += weight * static_cast<double>(elements);
  }
};

/// Keras' RootMeanSquaredError: the root of the mean of (p - t)^2 over all elements of all
/// examples.
/// \code
///   ls::Model model{Net{}, strategy, ls::MeanSquaredError{}, ls::Adam{},
///                   ls::RootMeanSquaredError{}};
/// \endcode
struct RootMeanSquaredError {
  static constexpr std::string_view name = "root_mean_squared_error";
  static constexpr std::size_t state_size = 2;

  template <class Target>
  static constexpr bool accepts(Shape) {
    return std::same_as<Target, float>;
  }
  template <class Target>
  constexpr RootMeanSquaredErrorOp op(Shape out) const {
    return {out.size(), positions_of(out).size()};
  }
  double result(const double* state) const {
    return state[1] != 0 ? std::sqrt(state[0] / state[1]) : 0;
  }
};

}  // namespace lockstep
