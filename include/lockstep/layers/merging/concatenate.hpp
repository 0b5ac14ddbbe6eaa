/// \file
/// Concatenation of two values along the last axis: merges the branches of Parallel.
#pragma once

#include "lockstep/concepts/layer.hpp"

namespace lockstep {

/// y[..., k] = x[..., k] for k below x's channels, then x2[..., k - channels].
struct ConcatenateOp {
  static constexpr std::string_view members = "in .other";
  Shape in;       // shape of x
  int other = 1;  // channels of x2; its other extents equal those of x
  constexpr Shape out() const {
    Shape result = in;
    result.extent[static_cast<std::size_t>(in.rank - 1)] += other;
    return result;
  }
  bool operator==(const ConcatenateOp&) const = default;
};

/// Keras' Concatenate along the last axis, as a rule that merges two branches. Input (.., a) and
/// (.., b), output (.., a + b).
struct Concatenate {
  static constexpr std::string_view name = "concatenate";
  static constexpr bool supports_masking = true;
  static constexpr bool accepts(Shape a, Shape b) {
    if (a.rank < 1 || a.rank != b.rank) return false;
    for (int axis = 0; axis + 1 < a.rank; ++axis)
      if (a[axis] != b[axis]) return false;
    return true;
  }
  static constexpr ConcatenateOp op(Shape a, Shape b) { return {a, b.channels()}; }
};

static_assert(JoinRule<Concatenate> &&
              Concatenate::op(shape(4, 4, 3), shape(4, 4, 5)).out() == shape(4, 4, 8));

}  // namespace lockstep
