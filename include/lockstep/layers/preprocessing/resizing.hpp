/// \file
/// Images of another size.
#pragma once

#include "lockstep/layers/options.hpp"
#include "lockstep/layers/preprocessing/augmentation.hpp"
#include "lockstep/layers/preprocessing/resized_image.hpp"

namespace lockstep {

/// y[r, c] = x at row (r + 1/2) h / height - 1/2 and column (c + 1/2) w / width - 1/2, interpolated
/// bilinearly between the four pixels around it, or of the nearest pixel; border pixels extend
/// outward.
struct ResizingOp {
  static constexpr std::string_view members = "in height width interpolation";
  Shape in;  // (height, width, channels)
  int height = 1, width = 1;
  Interpolation interpolation = Interpolation::bilinear;
  constexpr Shape out() const { return shape(height, width, in[2]); }
  constexpr ImagePart window() const { return {0, 0, in[0], in[1]}; }
  bool operator==(const ResizingOp&) const = default;
};

namespace detail {
template <int Height, int Width, class... Options>
struct CheckResizing {
  static_assert(Height > 0 && Width > 0,
                "lockstep::Resizing: height and width must be at least 1; write Resizing<32, 32>");
  static_assert(
      (is_any_of<Options, Interpolation> && ...),
      "lockstep::Resizing: an option is not supported; it accepts ls::bilinear or ls::nearest");
};
}  // namespace detail

/// Keras' Resizing(height, width) without antialiasing, by default with bilinear interpolation;
/// ls::nearest is the alternative. Input (h, w, c), output (Height, Width, c).
/// \code
///   Resizing<224, 224>, Resizing<32, 32, ls::nearest>
/// \endcode
template <int Height, int Width, auto... Options>
struct Resizing : detail::Augmentation {
  static constexpr std::string_view name = "resizing";
  static constexpr ResizingOp op(Shape in) {
    return {in, Height, Width, detail::option<Interpolation, Options...>(Interpolation::bilinear)};
  }

  static_assert(
      sizeof(detail::CheckResizing<Height, Width, std::remove_cvref_t<decltype(Options)>...>) > 0);
};

static_assert(Layer<Resizing<3, 4>> && ResizedImageOp<ResizingOp>);

}  // namespace lockstep
