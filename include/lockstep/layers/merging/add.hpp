/// \file
/// The sum of two values: merges the branches of Residual and Parallel.
#pragma once

#include "lockstep/concepts/layer.hpp"

namespace lockstep {

/// y = x + x2.
struct AddOp {
  Shape in;
  constexpr Shape out() const { return in; }
  bool operator==(const AddOp&) const = default;
};

/// Keras' Add as a rule that merges two branches. Input two equal shapes, output the same shape.
struct Add {
  static constexpr std::string_view name = "add";
  static constexpr bool supports_masking = true;
  static constexpr bool accepts(Shape a, Shape b) { return a == b; }
  static constexpr AddOp op(Shape a, Shape) { return {a}; }
};

static_assert(JoinRule<Add>);

}  // namespace lockstep
