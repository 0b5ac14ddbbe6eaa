/// \file
/// `cutout` masks out a square of each image (T. DeVries, G. Taylor, "Improved regularization of
/// convolutional neural networks with cutout", 2017). Invariant: the center of the square is
/// uniform over the pixels, so part of the square may lie outside the image.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers/drawn_span.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/images/image_map.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

/// Options of `cutout`.
struct CutoutOptions {
  double fill = 0;  ///< value in the square; 0 is the mean after `per_image_standardization`
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

/// Sets a square of `size` x `size` pixels of each image to `fill`. Its center is drawn for each
/// example and pass; the part outside the image is clipped (`tfa.image.random_cutout`).
///
/// The draws are a function of (seed, pass, operation, ordinal of the example).
/// \throws UsageError, when applied to a source, if `size` is below 1 or the examples are not
/// images.
/// \code
///   auto train = images | lockstep::per_image_standardization | lockstep::cutout(8);
/// \endcode
inline auto cutout(int size, CutoutOptions options = {}) {
  return pipeline::image_operation(pipeline::Cutout{size, options.fill});
}

}  // namespace lockstep
