/// \file
/// Random crops of images.
#pragma once

#include "lockstep/layers/preprocessing/augmentation.hpp"
#include "lockstep/layers/preprocessing/resized_image.hpp"

namespace lockstep {

/// Training: a window of the image at a random position. Inference, and images smaller than the
/// window: the largest centered part with the same aspect ratio, resized bilinearly.
struct RandomCropOp {
  static constexpr std::string_view members = "in height width";
  Shape in;  // (height, width, channels)
  int height = 1, width = 1;
  constexpr Shape out() const { return shape(height, width, in[2]); }
  /// Whether the window fits into the image.
  constexpr bool fits() const { return in[0] >= height && in[1] >= width; }
  /// The largest centered part of the image with the aspect ratio of the output.
  constexpr ImagePart middle() const { return detail::middle_of(in, height, width); }
  bool operator==(const RandomCropOp&) const = default;
};

namespace detail {
template <int Height, int Width>
struct CheckRandomCrop {
  static_assert(Height > 0 && Width > 0,
                "lockstep::RandomCrop: height and width must be at least 1; write RandomCrop<32, "
                "32>");
};
}  // namespace detail

/// Keras' RandomCrop(height, width). Input (h, w, c), output (Height, Width, c).
///
/// During training, crops a window at a position drawn for each image (Keras draws one position per
/// batch). Otherwise, and if the image is smaller than the window, resizes the largest centered
/// part with aspect ratio Height : Width bilinearly, as Keras documents. (The layer of Keras 3.15
/// actually leaves images unchanged outside training; Keras 2 behaves as documented.)
/// \code
///   RandomCrop<28, 28>
/// \endcode
template <int Height, int Width>
struct RandomCrop : detail::Augmentation {
  static constexpr std::string_view name = "random_crop";
  static constexpr RandomCropOp op(Shape in) { return {in, Height, Width}; }

  static_assert(sizeof(detail::CheckRandomCrop<Height, Width>) > 0);
};

static_assert(Layer<RandomCrop<3, 4>> &&
              RandomCrop<4, 4>::op(shape(5, 8, 3)).middle() == ImagePart{0, 1, 5, 5});

}  // namespace lockstep
