/// \file
/// The difference of two values: merges the branches of Parallel.
#pragma once

#include "lockstep/layers/merging/pairwise.hpp"

namespace lockstep {

/// y = x - x2.
struct SubtractOp {
  static constexpr bool reads_inputs = false;
  Shape in;
  constexpr Shape out() const { return in; }
  template <class T>
  constexpr T value(T a, T b) const {
    return a - b;
  }
  template <class T>
  constexpr T dx(T dy, T, T) const {
    return dy;
  }
  template <class T>
  constexpr T dx2(T dy, T, T) const {
    return -dy;
  }
  bool operator==(const SubtractOp&) const = default;
};

/// Keras' Subtract as a rule that merges two branches, and no more. Input two equal shapes, output
/// the same shape.
/// \code
///   Parallel<ls::Subtract, ls::Identity, ls::Dense<64>>      // x - (x W + b)
/// \endcode
struct Subtract : PairwiseRule<SubtractOp> {
  static constexpr std::string_view name = "subtract";
  static constexpr bool supports_masking = true;
};

static_assert(JoinRule<Subtract> && Pairwise<SubtractOp>);

}  // namespace lockstep
