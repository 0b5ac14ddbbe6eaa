/// \file
/// The mean of values: merges the branches of Parallel.
#pragma once

#include <cstddef>
#include <string_view>

#include "lockstep/layers/merging/merge.hpp"

namespace lockstep {

/// y = (x[0] + x[1] + ...) / n, from left to right, where n is the number of values.
struct AverageOp {
  static constexpr std::string_view members = "in ?.further";
  static constexpr bool reads_inputs = false;
  Shape in;
  int further = 1;  // operands after the first
  constexpr Shape out() const { return in; }
  constexpr std::size_t operands() const { return static_cast<std::size_t>(further) + 1; }
  template <class T>
  constexpr T fold(T sum, T x) const {
    return sum + x;
  }
  template <class T>
  constexpr T finish(T sum) const {
    return sum / static_cast<T>(further + 1);
  }
  template <class T, class X>
  constexpr T dx(T dy, const X&, std::size_t) const {
    return dy / static_cast<T>(further + 1);
  }
  bool operator==(const AverageOp&) const = default;
};

/// Keras' Average as a rule that merges two branches or more. Input equal shapes, output the same
/// shape.
/// \code
///   Parallel<ls::Average, A, B, C>      // (A(x) + B(x) + C(x)) / 3
/// \endcode
struct Average : MergeRule<AverageOp> {
  static constexpr std::string_view name = "average";
  static constexpr bool supports_masking = true;
};

static_assert(LayerOf<Average, 3> && Merge<AverageOp>);

}  // namespace lockstep
