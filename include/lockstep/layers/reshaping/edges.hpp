/// \file
/// Rows and columns at the edges of an image, which padding adds and cropping removes.
#pragma once

#include "lockstep/core/shape.hpp"
#include "lockstep/layers/reshaping/rearrangement.hpp"

namespace lockstep {

/// Rows and columns on each side.
struct Edges {
  int top = 1, bottom = 1, left = 1, right = 1;
  bool operator==(const Edges&) const = default;
};
/// The same number on all sides.
constexpr Edges edges(int all) { return {all, all, all, all}; }
/// `height` rows above and below, `width` columns left and right.
constexpr Edges edges(int height, int width) { return {height, height, width, width}; }
constexpr Edges edges(int top, int bottom, int left, int right) {
  return {top, bottom, left, right};
}

namespace detail {

/// Edges given as one number or as ls::edges.
constexpr Edges edges_of(int all) { return edges(all); }
constexpr Edges edges_of(Edges given) { return given; }

constexpr bool none_negative(Edges e) {
  return e.top >= 0 && e.bottom >= 0 && e.left >= 0 && e.right >= 0;
}

/// An image whose pixel (0, 0) is pixel (row, column) of `in`.
constexpr Rearrangement moved_image(Shape in, Shape out, int row, int column) {
  return Rearrangement::of(
      {{out[0], in[0], row, in[1] * in[2]}, {out[1], in[1], column, in[2]}, {in[2], in[2], 0, 1}});
}

}  // namespace detail
}  // namespace lockstep
