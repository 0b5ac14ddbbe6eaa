/// \file
/// Images of ten classes that are drawn instead of read. Invariants: image and label are a pure
/// function of (key, index); each run of ten from a multiple of ten on has each class once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/rng.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/sources/splits.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep::datasets::detail {

/// draw(label, draws, bytes) draws one image of shape `image`; `purpose` names its draws.
template <class Draw>
Images draw_images(std::size_t count, std::uint64_t key, const Shape& image,
                   std::string_view purpose, const Draw& draw) {
  const std::size_t pixels = image.size();
  std::vector<std::uint8_t> images(count * pixels);
  std::vector<std::int32_t> labels(count);
  std::array<std::int32_t, 10> order{};
  for (std::size_t i = 0; i < count; ++i) {
    if (i % 10 == 0) {  // the classes of the next ten, in a drawn order
      std::iota(order.begin(), order.end(), 0);
      Philox draws(mix(key, hash_name("classes")), i / 10);
      for (std::uint32_t n = 10; n > 1; --n) std::swap(order[n - 1], order[draws.below(n)]);
    }
    labels[i] = order[i % 10];
    Philox draws(mix(key, hash_name(purpose)), i);
    draw(labels[i], draws, std::span(images).subspan(i * pixels, pixels));
  }
  return {std::move(images), image, std::move(labels), Shape{}};
}

}  // namespace lockstep::datasets::detail
