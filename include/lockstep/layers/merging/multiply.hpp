/// \file
/// The product of two values: merges the branches of Parallel.
#pragma once

#include "lockstep/layers/merging/pairwise.hpp"

namespace lockstep {

/// y = x x2, element by element.
struct MultiplyOp {
  static constexpr bool reads_inputs = true;
  Shape in;
  constexpr Shape out() const { return in; }
  template <class T>
  constexpr T value(T a, T b) const {
    return a * b;
  }
  template <class T>
  constexpr T dx(T dy, T, T b) const {
    return dy * b;
  }
  template <class T>
  constexpr T dx2(T dy, T a, T) const {
    return dy * a;
  }
  bool operator==(const MultiplyOp&) const = default;
};

/// Keras' Multiply as a rule that merges branches. Input two equal shapes, output the same shape.
/// \code
///   // a gate: x sigmoid(x W + b)
///   Parallel<ls::Multiply, ls::Identity, ls::Dense<64, ls::sigmoid>>
/// \endcode
struct Multiply : PairwiseRule<MultiplyOp> {
  static constexpr std::string_view name = "multiply";
  static constexpr bool supports_masking = true;
};

static_assert(JoinRule<Multiply> && Pairwise<MultiplyOp>);

}  // namespace lockstep
