/// \file
/// The smaller of two values: merges the branches of Parallel.
#pragma once

#include "lockstep/layers/merging/pairwise.hpp"

namespace lockstep {

/// y = x if x <= x2, otherwise x2; NaN if one of them is NaN. The gradient goes to the operand
/// whose value y is, for equal ones to x.
struct MinimumOp {
  static constexpr bool reads_inputs = true;
  Shape in;
  constexpr Shape out() const { return in; }
  template <class T>
  constexpr T value(T a, T b) const {
    return is_first(a, b) ? a : b;
  }
  template <class T>
  constexpr T dx(T dy, T a, T b) const {
    return is_first(a, b) ? dy : T(0);
  }
  template <class T>
  constexpr T dx2(T dy, T a, T b) const {
    return is_first(a, b) ? T(0) : dy;
  }
  bool operator==(const MinimumOp&) const = default;

 private:
  template <class T>
  static constexpr bool is_first(T a, T b) {
    return a <= b || a != a;
  }
};

/// Keras' Minimum as a rule that merges branches. Input equal shapes, output the same shape. Of
/// equal values the gradient goes to the first branch, as in TensorFlow; JAX and PyTorch divide it.
/// \code
///   Parallel<ls::Minimum, A, B>
/// \endcode
struct Minimum : PairwiseRule<MinimumOp> {
  static constexpr std::string_view name = "minimum";
  static constexpr bool supports_masking = true;
};

static_assert(JoinRule<Minimum> && Pairwise<MinimumOp>);

}  // namespace lockstep
