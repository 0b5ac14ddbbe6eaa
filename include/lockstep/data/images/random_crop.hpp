/// \file
/// `random_crop` cuts a window out of each image at a random position. Invariant: all positions are
/// equally likely.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/images/image_map.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

/// Options of `random_crop`.
struct RandomCropOptions {
  int padding = 0;  ///< pixels added on each side before cropping
  double fill = 0;  ///< value of the padding
};

namespace pipeline {

/// The window of `random_crop` as a `Place` of ImageWindow.
struct RandomWindow {
  static constexpr std::string_view name = "random_crop";
  static constexpr bool random = true;
  int height = 0, width = 0, padding = 0;
  double fill = 0;

  void check(const Shape& in) const {
    if (height < 1 || width < 1)
      throw UsageError(
          "random_crop({}, {}): the window is empty; height and width must be at least 1", height,
          width);
    if (padding < 0)
      throw UsageError("random_crop: padding is {} pixels; it must be at least 0", padding);
    if (places(in[0], height) < 1 || places(in[1], width) < 1)
      throw UsageError(
          "random_crop({}, {}) of images {} with padding {}: the window is larger than the padded "
          "image; pad more or crop less",
          height, width, to_string(in), padding);
    if (std::max(places(in[0], height), places(in[1], width)) >
        std::numeric_limits<std::uint32_t>::max())
      throw UsageError("random_crop: padding of {} pixels is too large; pad less", padding);
  }
  Corner corner(const Shape& in, Philox& draws) const {
    const auto draw = [&](int extent, int window) {
      const auto count = static_cast<std::uint32_t>(places(extent, window));
      return std::int64_t{draws.below(count)} - padding;
    };
    const std::int64_t row = draw(in[0], height);
    return {row, draw(in[1], width)};
  }
  /// Number of positions of a window along one axis of the padded image.
  std::int64_t places(std::int64_t extent, std::int64_t window) const {
    return extent + 2 * std::int64_t{padding} - window + 1;
  }
};

}  // namespace pipeline

/// Crops a window of (height, width) out of each image, at a position drawn for each example and
/// pass (`tf.image.random_crop` after `tf.image.pad_to_bounding_box`).
///
/// The draws are a function of (seed, pass, operation, ordinal of the example).
/// \throws UsageError, when applied to a source, if the window is larger than the padded images or
/// the examples are not images.
/// \code
///   auto train = cifar | lockstep::random_crop(32, 32, {.padding = 4});   // out of 40 x 40
/// \endcode
inline auto random_crop(int height, int width, RandomCropOptions options = {}) {
  return pipeline::image_operation(
      pipeline::RandomWindow{height, width, options.padding, options.fill});
}

}  // namespace lockstep
