/// \file
/// The mean of values: merges the branches of Parallel.
#pragma once

#include "lockstep/layers/merging/add.hpp"
#include "lockstep/layers/merging/pairwise.hpp"

namespace lockstep {

/// y = (x + x2) / divisor.
struct AverageOp {
  static constexpr std::string_view members = "in divisor";
  static constexpr bool reads_inputs = false;
  Shape in;
  int divisor = 2;
  constexpr Shape out() const { return in; }
  template <class T>
  constexpr T value(T a, T b) const {
    return (a + b) / static_cast<T>(divisor);
  }
  template <class T>
  constexpr T dx(T dy, T, T) const {
    return dy / static_cast<T>(divisor);
  }
  template <class T>
  constexpr T dx2(T dy, T, T) const {
    return dy / static_cast<T>(divisor);
  }
  bool operator==(const AverageOp&) const = default;
};

/// Keras' Average as a rule that merges branches. Input equal shapes, output the same shape. n
/// branches are summed by Add, and the last sum is divided by n.
/// \code
///   Parallel<ls::Average, A, B, C>      // (A(x) + B(x) + C(x)) / 3
/// \endcode
struct Average {
  static constexpr std::string_view name = "average";
  static constexpr bool supports_masking = true;
  using partial = Add;
  static constexpr bool accepts(Shape a, Shape b) { return a == b; }
  static constexpr AverageOp op(Shape a, Shape, int branches = 2) { return {a, branches}; }
};

static_assert(JoinRule<Average> && Pairwise<AverageOp>);

}  // namespace lockstep
