/// \file
/// The sum of values: merges the branches of Residual and Parallel.
#pragma once

#include <cstddef>
#include <string_view>

#include "lockstep/layers/merging/merge.hpp"

namespace lockstep {

/// y = x[0] + x[1] + ..., from left to right.
struct AddOp {
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
    return sum;
  }
  template <class T, class X>
  constexpr T dx(T dy, const X&, std::size_t) const {
    return dy;
  }
  bool operator==(const AddOp&) const = default;
};

/// Keras' Add as a rule that merges two branches or more. Input equal shapes, output the same shape.
struct Add : MergeRule<AddOp> {
  static constexpr std::string_view name = "add";
  static constexpr bool supports_masking = true;
};

static_assert(LayerOf<Add, 2> && LayerOf<Add, 5> && Merge<AddOp>);

}  // namespace lockstep
