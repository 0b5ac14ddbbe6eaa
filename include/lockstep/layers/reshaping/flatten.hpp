/// \file
/// Changes of shape that do not move data.
#pragma once

#include <cstddef>
#include <limits>

#include "lockstep/concepts/layer.hpp"

namespace lockstep {

/// The same elements with another shape. The plan removes this op: its output aliases its input.
struct ViewOp {
  static constexpr std::string_view members = "in target_shape";
  Shape in, to;
  constexpr Shape out() const { return to; }
  bool operator==(const ViewOp&) const = default;
};

/// Keras' Flatten. Input of any shape, output (product of its extents).
struct Flatten {
  static constexpr std::string_view name = "flatten";
  static constexpr bool accepts(Shape in) {
    return in.size() <= std::size_t{std::numeric_limits<int>::max()};
  }
  template <Shape In>
  struct Requires {
    static_assert(
        accepts(In),
        "lockstep::Flatten: the input has 2^31 elements or more, which overflows an extent; shrink "
        "it, for example by pooling");
  };
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
  static constexpr ViewOp op(Shape in) { return {in, shape(in.size())}; }
};

static_assert(Layer<Flatten> && Flatten::op(shape(13, 13, 32)).out() == shape(5408));

}  // namespace lockstep
