/// \file
/// Images that are resized, or a part of them. Invariant: an op that names the part and the
/// interpolation needs no separate kernel.
#pragma once

#include <algorithm>
#include <concepts>

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/interpolation.hpp"

namespace lockstep {

/// A rectangle within an image, in pixels.
struct ImagePart {
  int row = 0, column = 0, height = 0, width = 0;
  bool operator==(const ImagePart&) const = default;
};

/// An op over images (height, width, channels) that resizes the part `window()` to out(). Pixels
/// are areas: the center of pixel i of n is at (i + 1/2) extent / n of the window. The window's
/// border pixels extend outward.
template <class O>
concept ResizedImageOp = Op<O> && requires(const O& op) {
  { op.window() } -> std::same_as<ImagePart>;
  { op.in } -> std::convertible_to<Shape>;
  { op.interpolation } -> std::convertible_to<Interpolation>;
};

namespace detail {

/// The largest centered part of an image with the aspect ratio height : width.
constexpr ImagePart middle_of(Shape in, int height, int width) {
  const auto scaled = [](long long extent, int to, int from, int limit) {
    const long long whole = extent * to / from;
    return whole < 1 ? 1 : whole < limit ? static_cast<int>(whole) : limit;
  };
  const int h = scaled(in[1], height, width, in[0]), w = scaled(in[0], width, height, in[1]);
  return {(in[0] - h) / 2, (in[1] - w) / 2, h, w};
}

/// Where pixel `i` of `out` lies on an axis of `extent` pixels: `rest` / `whole` of the way from
/// `low` to `high`. Exact, so that all devices choose the same pixels.
struct ResizedPlace {
  int low = 0, high = 0;
  long long rest = 0, whole = 1;
};
constexpr ResizedPlace resized_place(int i, int out, int extent, Interpolation how) {
  const long long center = (2LL * i + 1) * extent, whole = 2LL * out;
  if (how == Interpolation::nearest) {
    const int at = static_cast<int>(center / whole);
    return {at, at, 0, 1};
  }
  const long long position = center - out;  // from the center of the first pixel
  const int low = position < 0 ? -1 : static_cast<int>(position / whole);
  const long long rest = position - low * whole;
  return {std::max(low, 0), std::min(rest == 0 ? low : low + 1, extent - 1), rest, whole};
}
static_assert(resized_place(0, 4, 2, Interpolation::bilinear).high == 0 &&
              resized_place(1, 4, 2, Interpolation::bilinear).rest == 2 &&
              resized_place(1, 2, 6, Interpolation::nearest).low == 4);

}  // namespace detail
}  // namespace lockstep
