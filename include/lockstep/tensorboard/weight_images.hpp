/// \file
/// A parameter as grey images. Invariant: black is the least finite value, white the largest.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "lockstep/concepts/named_tensor.hpp"
#include "lockstep/core/numbers/finite.hpp"
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
[[gnu::cold]] inline WeightImages weight_images(const NamedTensor& weight, std::size_t most = 3) {
  // Height, width, number of images, and the distances of neighbours in memory along these axes.
  std::array<std::size_t, 3> extent{1, 1, 1}, stride{0, 0, 0};
  std::size_t rank = 0;
  for (int axis = 0; axis < weight.shape.rank; ++axis) {
    const auto n = static_cast<std::size_t>(weight.shape[axis]);
    if (n == 1) continue;
    if (rank == 3) return {};
    for (std::size_t outer = 0; outer < rank; ++outer) stride[outer] *= n;
    extent[rank] = n;
    stride[rank++] = 1;
  }
  if (rank == 1 || (rank == 2 && extent[0] > extent[1])) {
    std::swap(extent[0], extent[1]);
    std::swap(stride[0], stride[1]);
  }
  float least = std::numeric_limits<float>::max(), largest = std::numeric_limits<float>::lowest();
  for (const float v : weight.values) {
    if (!is_finite(v)) continue;
    least = std::min(least, v);
    largest = std::max(largest, v);
  }
  const double range = static_cast<double>(largest) - static_cast<double>(least);
  const auto grey = [&](float v) -> std::uint8_t {
    if (!is_finite(v) || !(range > 0)) return 0;
    return static_cast<std::uint8_t>(
        std::lround(255 * (static_cast<double>(v) - static_cast<double>(least)) / range));
  };
  WeightImages result{shape(static_cast<int>(extent[0]), static_cast<int>(extent[1]), 1), {}};
  for (std::size_t i = 0; i < std::min(extent[2], most); ++i)
    for (std::size_t y = 0; y < extent[0]; ++y)
      for (std::size_t x = 0; x < extent[1]; ++x)
        result.pixels.push_back(grey(weight.values[y * stride[0] + x * stride[1] + i * stride[2]]));
  return result;
}

}  // namespace lockstep::detail
