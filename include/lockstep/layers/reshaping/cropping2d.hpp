/// \file
/// Cropping of images.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/reshaping/edges.hpp"

namespace lockstep {

/// y[n, r, c, k] = x[n, top + r, left + c, k].
struct Cropping2DOp {
  static constexpr std::string_view members = "in cropping";
  Shape in;  // (height, width, channels)
  Edges edges;
  constexpr Shape out() const {
    return shape(in[0] - edges.top - edges.bottom, in[1] - edges.left - edges.right, in[2]);
  }
  constexpr Rearrangement rearrangement() const {
    return detail::moved_image(in, out(), edges.top, edges.left);
  }
  bool operator==(const Cropping2DOp&) const = default;
};

namespace detail {
template <Edges E>
struct CheckCropping2D {
  static_assert(none_negative(E),
                "lockstep::Cropping2D: the cropping of each side must be at least 0; write "
                "Cropping2D<1> or Cropping2D<ls::edges(top, bottom, left, right)>");
};
}  // namespace detail

/// Keras' Cropping2D. Input (h, w, c), output (h - top - bottom, w - left - right, c), at least one
/// pixel.
/// \code
///   Cropping2D<1>                         // 1 on each side
///   Cropping2D<ls::edges(2, 3)>           // 2 above and below, 3 left and right
///   Cropping2D<ls::edges(0, 1, 0, 1)>     // top, bottom, left, right
/// \endcode
template <auto Cropping = 0>
struct Cropping2D {
  static constexpr std::string_view name = "cropping2d";
  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 3 || detail::always_false<Cropping2D>,
        "lockstep::Cropping2D: the input does not have height, width and channels; put it before "
        "Flatten");
    static_assert(In.rank != 3,
                  "lockstep::Cropping2D: nothing is left of the input; crop fewer rows or columns");
  };
  static constexpr bool accepts(Shape in) {
    return in.rank == 3 && op(in).out()[0] > 0 && op(in).out()[1] > 0;
  }
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
  static constexpr Cropping2DOp op(Shape in) { return {in, detail::edges_of(Cropping)}; }

  static_assert(sizeof(detail::CheckCropping2D<detail::edges_of(Cropping)>) > 0);
};

static_assert(Layer<Cropping2D<>> && Rearranges<Cropping2DOp> &&
              Cropping2D<edges(0, 1, 2, 1)>::op(shape(4, 5, 6)).out() == shape(3, 2, 6) &&
              !Cropping2D<2>::accepts(shape(4, 5, 6)));

}  // namespace lockstep
