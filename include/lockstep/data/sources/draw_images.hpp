/// \file
/// Synthetic images of ten classes. Invariants: image and label are a pure function of (key,
/// index); images 10 k to 10 k + 9 contain each class once.
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

/// Draws `count` images of shape `image` by `draw(label, draws, bytes)`. `purpose` names the random
/// stream of the images.
template <class Draw>
Images draw_images(std::size_t count, std::uint64_t key, const Shape& image,
                   std::string_view purpose, const Draw& draw) {
  const std::size_t pixels = image.size();
  std::vector<std::uint8_t> images(count * pixels);
  std::vector<std::int32_t> labels(count);
  std::array<std::int32_t, 10> order{};
  for (std::size_t i = 0; i < count; ++i) {
    if (i % 10 == 0) {  // shuffle the classes of the next ten images
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
