/// \file
/// The middle of an image.
#pragma once

#include "lockstep/layers/preprocessing/augmentation.hpp"
#include "lockstep/layers/preprocessing/resized_image.hpp"

namespace lockstep {

/// The middle `height` x `width` pixels of x. If x is smaller along an axis, the largest centered
/// part with the same aspect ratio, resized bilinearly.
struct CenterCropOp {
  static constexpr std::string_view members = "in height width";
  static constexpr Interpolation interpolation = Interpolation::bilinear;
  Shape in;  // (height, width, channels)
  int height = 1, width = 1;
  constexpr Shape out() const { return shape(height, width, in[2]); }
  constexpr ImagePart window() const {
    if (in[0] < height || in[1] < width) return detail::middle_of(in, height, width);
    return {(in[0] - height) / 2, (in[1] - width) / 2, height, width};
  }
  bool operator==(const CenterCropOp&) const = default;
};

namespace detail {
template <int Height, int Width>
struct CheckCenterCrop {
  static_assert(Height > 0 && Width > 0,
                "lockstep::CenterCrop: height and width must be at least 1; write CenterCrop<32, "
                "32>");
};
}  // namespace detail

/// Keras' CenterCrop(height, width). Input (h, w, c), output (Height, Width, c). Images smaller
/// than the window are cut to its aspect ratio and resized.
/// \code
///   CenterCrop<224, 224>
/// \endcode
template <int Height, int Width>
struct CenterCrop : detail::Augmentation {
  static constexpr std::string_view name = "center_crop";
  static constexpr CenterCropOp op(Shape in) { return {in, Height, Width}; }

  static_assert(sizeof(detail::CheckCenterCrop<Height, Width>) > 0);
};

static_assert(Layer<CenterCrop<3, 4>> && ResizedImageOp<CenterCropOp> &&
              CenterCrop<3, 4>::op(shape(6, 9, 1)).window() == ImagePart{1, 2, 3, 4});

}  // namespace lockstep
