/// \file
/// `random_flip_left_right` and `random_flip_up_down` mirror each image with probability 1/2.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "lockstep/core/rng.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/images/image_map.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace pipeline {

/// Mirrors each row: image[r, c] <- image[r, width - 1 - c].
template <class T>
void flip_left_right(T* image, const Shape& shape) {
  const auto width = static_cast<std::size_t>(shape[1]),
             channels = static_cast<std::size_t>(shape[2]);
  for (int r = 0; r < shape[0]; ++r, image += width * channels) {
    T* left = image;
    T* right = image + (width - 1) * channels;
    for (; left < right; left += channels, right -= channels)
      for (std::size_t k = 0; k < channels; ++k) std::swap(left[k], right[k]);
  }
}

/// Mirrors each column: image[r, c] <- image[height - 1 - r, c].
template <class T>
void flip_up_down(T* image, const Shape& shape) {
  const std::size_t row = static_cast<std::size_t>(shape[1]) * static_cast<std::size_t>(shape[2]);
  T* low = image + (static_cast<std::size_t>(shape[0]) - 1) * row;
  for (T* high = image; high < low; high += row, low -= row)
    std::swap_ranges(high, high + row, low);
}

struct FlipLeftRight {
  static constexpr std::string_view name = "random_flip_left_right";
  static constexpr bool random = true;
  void check(const Shape&) const {}
  template <class T>
  void operator()(T* image, const Shape& shape, Philox& draws) const {
    if (draws.below(2) == 1) flip_left_right(image, shape);
  }
};

struct FlipUpDown {
  static constexpr std::string_view name = "random_flip_up_down";
  static constexpr bool random = true;
  void check(const Shape&) const {}
  template <class T>
  void operator()(T* image, const Shape& shape, Philox& draws) const {
    if (draws.below(2) == 1) flip_up_down(image, shape);
  }
};

}  // namespace pipeline

/// Mirrors each image left to right with probability 1/2, drawn for each example and pass
/// (`tf.image.random_flip_left_right`).
///
/// The draw is a function of (seed, pass, operation, ordinal of the example).
/// \throws UsageError, when applied to a source, if the examples are not images.
/// \code
///   auto train = images | lockstep::random_flip_left_right;
/// \endcode
inline constexpr auto random_flip_left_right = pipeline::image_operation(pipeline::FlipLeftRight());

/// Mirrors each image top to bottom with probability 1/2 (`tf.image.random_flip_up_down`).
inline constexpr auto random_flip_up_down = pipeline::image_operation(pipeline::FlipUpDown());

}  // namespace lockstep
