/// \file
/// Changes of shape that move no data.
#pragma once

#include "lockstep/concepts/layer.hpp"

namespace lockstep {

/// The same elements under another shape. The plan drops it: its output is another name of its
/// input.
struct ViewOp {
  static constexpr std::string_view members = "in to";
  Shape in, to;
  constexpr Shape out() const { return to; }
  bool operator==(const ViewOp&) const = default;
};

/// Keras' Flatten. In any shape, out (product of its extents).
struct Flatten {
  static constexpr std::string_view name = "flatten";
  static constexpr bool accepts(Shape) { return true; }
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
  static constexpr ViewOp op(Shape in) { return {in, shape(in.size())}; }
};

static_assert(Layer<Flatten> && Flatten::op(shape(13, 13, 32)).out() == shape(5408));

}  // namespace lockstep
