/// \file
/// The product of values: merges the branches of Parallel.
#pragma once

#include <cstddef>
#include <string_view>

#include "lockstep/layers/merging/merge.hpp"

namespace lockstep {

/// y = x[0] x[1] ..., element by element, from left to right.
struct MultiplyOp {
  static constexpr std::string_view members = "in ?.further";
  static constexpr bool reads_inputs = true;
  static constexpr bool keeps_padded = false;
  Shape in;
  int further = 1;  // operands after the first
  constexpr Shape out() const { return in; }
  constexpr std::size_t operands() const { return static_cast<std::size_t>(further) + 1; }
  template <class T>
  constexpr T fold(T product, T x) const {
    return product * x;
  }
  template <class T>
  constexpr T finish(T product) const {
    return product;
  }
  template <class T, class X>
  constexpr T dx(T dy, const X& x, std::size_t k) const {
    for (std::size_t j = 0; j < operands(); ++j)
      if (j != k) dy *= x(j);
    return dy;
  }
  bool operator==(const MultiplyOp&) const = default;
};

/// Keras' Multiply as a rule that merges two branches or more. Input equal shapes, output the same
/// shape. A branch with a mask is left out at its padded steps; y is 0 where all are padded.
/// \code
///   // a gate: x sigmoid(x W + b)
///   Parallel<ls::Multiply, ls::Identity, ls::Dense<64, ls::sigmoid>>
/// \endcode
struct Multiply : MergeRule<MultiplyOp> {
  static constexpr std::string_view name = "multiply";
  static constexpr bool supports_masking = true;
};

static_assert(LayerOf<Multiply, 3> && Merge<MultiplyOp>);

}  // namespace lockstep
