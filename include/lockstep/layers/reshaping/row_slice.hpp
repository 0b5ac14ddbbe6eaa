/// \file
/// A part of a row, as the op of a graph with several inputs.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/reshaping/rearrangement.hpp"

namespace lockstep {

/// y = x[offset:offset + size] with another shape, where x is a vector.
struct RowSliceOp {
  static constexpr std::string_view members = "in target_shape offset";
  Shape in, to;
  int offset = 0;
  constexpr Shape out() const { return to; }
  constexpr Rearrangement rearrangement() const {
    return Rearrangement::of({{static_cast<int>(to.size()), in[0], offset, 1}});
  }
  bool operator==(const RowSliceOp&) const = default;
};

static_assert(Rearranges<RowSliceOp>);

}  // namespace lockstep
