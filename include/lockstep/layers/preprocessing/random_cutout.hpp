/// \file
/// Cutout: masks out a square of each image (T. DeVries, G. Taylor, "Improved regularization of
/// convolutional neural networks with cutout", 2017).
#pragma once

#include "lockstep/layers/preprocessing/augmentation.hpp"

namespace lockstep {

/// Training: sets a square of `size` x `size` pixels to `fill`. Its center is uniform over the
/// pixels, so part of it may lie outside the image. Inference: y = x.
struct RandomCutoutOp {
  static constexpr std::string_view members = "in size fill";
  Shape in;  // (height, width, channels)
  int size = 1;
  float fill = 0;
  constexpr Shape out() const { return in; }
  bool operator==(const RandomCutoutOp&) const = default;
};

namespace detail {
template <int Size, Fill F>
struct CheckRandomCutout {
  static_assert(
      Size > 0 && F.mode == FillMode::constant,
      "lockstep::RandomCutout: the side must be at least 1 and the fill a constant; write "
      "RandomCutout<8> or RandomCutout<8, ls::fill_constant(0.5f)>");
};
}  // namespace detail

/// During training, masks out a square at a random position of each image. `ls::cutout` does the
/// same in data pipelines. Shape unchanged.
/// \code
///   RandomCutout<8>
/// \endcode
template <int Size, Fill F = fill_constant(0)>
struct RandomCutout : detail::Augmentation {
  static constexpr std::string_view name = "random_cutout";
  static constexpr RandomCutoutOp op(Shape in) { return {in, Size, F.value}; }

  static_assert(sizeof(detail::CheckRandomCutout<Size, F>) > 0);
};

static_assert(Layer<RandomCutout<8>>);

}  // namespace lockstep
