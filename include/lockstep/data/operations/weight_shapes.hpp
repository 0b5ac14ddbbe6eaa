/// \file
/// Shapes of sample weights: () for one weight per example, or the shape of the positions that have
/// one each. Invariant: one weight stands for the same weight at all positions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep {
namespace detail {

/// Repeats each of the first `count` weights `times` times, in place.
template <class T>
void repeat_weights(T* w, std::size_t count, std::size_t times) {
  if (times == 1) return;
  for (std::size_t i = count; i-- > 0;) {
    const T weight = w[i];
    std::fill_n(w + i * times, times, weight);
  }
}

}  // namespace detail

namespace pipeline {

/// The shape of the product of two weights. \throws UsageError if both have positions, and they
/// differ.
inline Shape common_weights(std::string_view operation, const Shape& first, const Shape& second) {
  if (first.rank == 0 || first == second) return second;
  if (second.rank == 0) return first;
  throw UsageError(
      "{}: the examples have weights of shape {} and of shape {}; give weights of one shape, or "
      "one weight per example",
      operation, to_string(first), to_string(second));
}

}  // namespace pipeline
}  // namespace lockstep
