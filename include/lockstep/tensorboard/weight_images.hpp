/// \file
/// A parameter as grey images. Invariant: black is the least finite value, white the largest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/concepts/named_tensor.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep::detail {

/// Images of one parameter: see EventWriter::add_images. No pixels: it cannot be shown.
struct WeightImages {
  Shape image;
  std::vector<std::uint8_t> pixels;
};

/// As Keras shows a weight, with axes of extent 1 left out: a vector as one row, a matrix as one
/// image that is at least as wide as high, three axes as an image for each index of the last axis,
/// of which the first `most` are shown. Other ranks have no images.
LOCKSTEP_COLD_DECL WeightImages weight_images(const NamedTensor& weight, std::size_t most = 3);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/tensorboard/weight_images.ipp"
#endif
