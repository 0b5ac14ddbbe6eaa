/// \file
/// Zero padding of images.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/reshaping/edges.hpp"

namespace lockstep {

/// y[n, top + r, left + c, k] = x[n, r, c, k], and 0 elsewhere.
struct ZeroPadding2DOp {
  static constexpr std::string_view members = "in padding";
  Shape in;  // (height, width, channels)
  Edges edges;
  constexpr Shape out() const {
    return shape(in[0] + edges.top + edges.bottom, in[1] + edges.left + edges.right, in[2]);
  }
  constexpr Rearrangement rearrangement() const {
    return detail::moved_image(in, out(), -edges.top, -edges.left);
  }
  bool operator==(const ZeroPadding2DOp&) const = default;
};

namespace detail {
template <Edges E>
struct CheckZeroPadding2D {
  static_assert(none_negative(E),
                "lockstep::ZeroPadding2D: the padding of each side must be at least 0; write "
                "ZeroPadding2D<1> or ZeroPadding2D<ls::edges(top, bottom, left, right)>");
};
}  // namespace detail

/// Keras' ZeroPadding2D. Input (h, w, c), output (h + top + bottom, w + left + right, c).
/// \code
///   ZeroPadding2D<>                          // 1 on each side
///   ZeroPadding2D<ls::edges(2, 3)>           // 2 above and below, 3 left and right
///   ZeroPadding2D<ls::edges(0, 1, 0, 1)>     // top, bottom, left, right
/// \endcode
template <auto Padding = 1>
struct ZeroPadding2D {
  static constexpr std::string_view name = "zero_padding2d";
  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 3,
        "lockstep::ZeroPadding2D: the input does not have height, width and channels; put it "
        "before Flatten");
  };
  static constexpr bool accepts(Shape in) { return in.rank == 3; }
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
  static constexpr ZeroPadding2DOp op(Shape in) { return {in, detail::edges_of(Padding)}; }

  static_assert(sizeof(detail::CheckZeroPadding2D<detail::edges_of(Padding)>) > 0);
};

static_assert(Layer<ZeroPadding2D<>> && Rearranges<ZeroPadding2DOp> &&
              ZeroPadding2D<edges(0, 1, 2, 3)>::op(shape(4, 5, 6)).out() == shape(5, 10, 6));

}  // namespace lockstep
