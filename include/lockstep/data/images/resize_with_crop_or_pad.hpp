/// \file
/// `resize_with_crop_or_pad` changes the size of images without scaling them. Invariant: the image
/// stays centered; if a difference is odd, the larger half goes to the bottom and the right, as in
/// tf.image.
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/images/image_map.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace pipeline {

/// The central window of an image; negative corners pad instead of crop.
struct CentralWindow {
  static constexpr std::string_view name = "resize_with_crop_or_pad";
  static constexpr bool random = false;
  static constexpr double fill = 0;
  int height = 0, width = 0;

  void check(const Shape&) const {
    if (height < 1 || width < 1)
      throw UsageError(
          "resize_with_crop_or_pad({}, {}): the image is empty; height and width must be at least "
          "1",
          height, width);
  }
  Corner corner(const Shape& in) const { return {middle(in[0], height), middle(in[1], width)}; }

 private:
  static std::int64_t middle(std::int64_t in, std::int64_t out) {
    return in >= out ? (in - out) / 2 : -((out - in) / 2);
  }
};

}  // namespace pipeline

/// Crops images to their center or pads them with zeros to (height, width, channels), each axis
/// independently (`tf.image.resize_with_crop_or_pad`).
/// \throws UsageError, when applied to a source, unless both are at least 1 and the examples are
/// images.
/// \code
///   auto padded = images | lockstep::resize_with_crop_or_pad(40, 40);   // of (32, 32, 3)
/// \endcode
inline auto resize_with_crop_or_pad(int height, int width) {
  return pipeline::image_operation(pipeline::CentralWindow{height, width});
}

}  // namespace lockstep
