/// \file
/// Random mirror images.
#pragma once

#include "lockstep/layers/preprocessing/augmentation.hpp"

namespace lockstep {

/// Keras' modes of RandomFlip. `horizontal` mirrors left to right.
enum class FlipMode : int { horizontal, vertical, horizontal_and_vertical };
inline constexpr FlipMode horizontal = FlipMode::horizontal, vertical = FlipMode::vertical,
                          horizontal_and_vertical = FlipMode::horizontal_and_vertical;
constexpr std::string_view keras_name(FlipMode mode) {
  constexpr std::string_view names[]{"horizontal", "vertical", "horizontal_and_vertical"};
  return names[static_cast<int>(mode)];
}

/// Training: x or its mirror image, with probability 1/2 each. Inference: y = x.
struct RandomFlipOp {
  static constexpr std::string_view members = "in mode";
  Shape in;  // (height, width, channels)
  FlipMode mode = FlipMode::horizontal_and_vertical;
  constexpr Shape out() const { return in; }
  bool operator==(const RandomFlipOp&) const = default;
};

/// Keras' RandomFlip: during training, mirrors each image with probability 1/2, in both directions
/// at once for the default, `horizontal_and_vertical`. Shape unchanged.
/// \code
///   RandomFlip<ls::horizontal>
/// \endcode
template <FlipMode Mode = FlipMode::horizontal_and_vertical>
struct RandomFlip : detail::Augmentation {
  static constexpr std::string_view name = "random_flip";
  static constexpr RandomFlipOp op(Shape in) { return {in, Mode}; }
};

static_assert(Layer<RandomFlip<>> && Layer<RandomFlip<horizontal>>);

}  // namespace lockstep
