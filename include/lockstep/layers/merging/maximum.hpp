/// \file
/// The largest of values: merges the branches of Parallel.
#pragma once

#include <cstddef>
#include <string_view>

#include "lockstep/layers/merging/merge.hpp"

namespace lockstep {

/// y = the largest of x[0], x[1], ..., element by element; NaN if one of them is NaN. The gradient goes
/// to the operand whose value y is, of several equal ones to the first.
struct MaximumOp {
  static constexpr std::string_view members = "in ?.further";
  static constexpr bool reads_inputs = true;
  static constexpr bool keeps_padded = true;
  Shape in;
  int further = 1;  // operands after the first
  constexpr Shape out() const { return in; }
  constexpr std::size_t operands() const { return static_cast<std::size_t>(further) + 1; }
  template <class T>
  constexpr T fold(T largest, T x) const {
    return is_first(largest, x) ? largest : x;
  }
  template <class T>
  constexpr T finish(T largest) const {
    return largest;
  }
  template <class T, class X>
  constexpr T dx(T dy, const X& x, std::size_t k) const {
    return detail::gradient_of_kept(dy, x, k, operands(), [](T a, T b) { return is_first(a, b); });
  }
  bool operator==(const MaximumOp&) const = default;

 private:
  template <class T>
  static constexpr bool is_first(T a, T b) {
    return a >= b || a != a;
  }
};

/// Keras' Maximum as a rule that merges two branches or more. Input equal shapes, output the same
/// shape. Of equal values the gradient goes to the first branch, as in TensorFlow; JAX and PyTorch
/// divide it. A branch with a mask is left out at its padded steps; y is the first one where all are
/// padded.
/// \code
///   Parallel<ls::Maximum, A, B>
/// \endcode
struct Maximum : MergeRule<MaximumOp> {
  static constexpr std::string_view name = "maximum";
  static constexpr bool supports_masking = true;
};

static_assert(LayerOf<Maximum, 3> && Merge<MaximumOp>);

}  // namespace lockstep
