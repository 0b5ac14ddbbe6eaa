/// \file
/// `cutout`: a square of each image is blotted out (T. DeVries, G. Taylor, "Improved regularization
/// of convolutional neural networks with cutout", 2017). Invariant: the square's middle is any
/// pixel, each equally likely, so that a part of the square may lie outside.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/core/drawn_span.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/images/image_map.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

/// What `cutout` writes.
struct CutoutOptions {
  double fill = 0;  ///< number in the square; 0 is the mean behind `per_image_standardization`
};

namespace pipeline {

struct Cutout {
  static constexpr std::string_view name = "cutout";
  static constexpr bool random = true;
  int size = 0;
  double fill = 0;

  void check(const Shape&) const {
    if (size < 1)
      throw UsageError("cutout({}): the square is empty; its side must be at least 1", size);
  }
  template <class T>
  void operator()(T* image, const Shape& shape, Philox& draws) const {
    const DrawnSpan rows = drawn_span(size, shape[0], draws);
    const DrawnSpan columns = drawn_span(size, shape[1], draws);
    const auto channels = static_cast<std::size_t>(shape[2]);
    for (std::size_t r = rows.begin; r < rows.end; ++r)
      std::fill_n(image + (r * static_cast<std::size_t>(shape[1]) + columns.begin) * channels,
                  (columns.end - columns.begin) * channels, static_cast<T>(fill));
  }
};

}  // namespace pipeline

/// A square of `size` pixels a side of each image becomes `fill`; its middle is drawn anew for each
/// example and pass, and what lies outside the image is cut off (`tfa.image.random_cutout`).
///
/// The draws are a function of (seed, pass, operation, ordinal of the example).
/// \throws UsageError if `size` is below 1 or the source has no images, when it meets it.
/// \code
///   auto train = images | lockstep::per_image_standardization | lockstep::cutout(8);
/// \endcode
inline pipeline::ImageOperation<pipeline::ImageMap, pipeline::Cutout> cutout(
    int size, CutoutOptions options = {}) {
  return pipeline::ImageOperation<pipeline::ImageMap, pipeline::Cutout>({size, options.fill});
}

}  // namespace lockstep
