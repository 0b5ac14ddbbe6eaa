#pragma once

#include "lockstep/data/sources/drawn_shapes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include "lockstep/core/rng.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/sources/draw_images.hpp"

namespace lockstep::datasets::detail {

float distance_to_shape(std::int32_t label, float x, float y) {
  const float u = std::abs(x), v = std::abs(y), radius = std::sqrt(x * x + y * y);
  switch (label) {
    case 0:
      return radius - 0.85f;
    case 1:
      return std::abs(radius - 0.72f) - 0.2f;
    case 2:
      return std::max(u, v) - 0.7f;
    case 3:
      return std::abs(std::max(u, v) - 0.56f) - 0.16f;
    case 4:
      return std::max(0.8660254f * u - 0.5f * y, y) - 0.48f;
    case 5:
      return std::min(std::max(u - 0.24f, v - 0.92f), std::max(u - 0.92f, v - 0.24f));
    case 6: {  // one of ten symmetric edges: from the tip at 36 degrees to the inner corner at 0
      constexpr float fifth = 1.2566371f, tip_x = 0.809017f, tip_y = 0.587785f, inner = 0.42f;
      const float angle = std::atan2(y, x), turns = std::floor(angle / fifth + 0.5f);
      const float folded = std::abs(angle - turns * fifth);
      const float px = radius * std::cos(folded) - inner, py = radius * std::sin(folded);
      const float dx = tip_x - inner, dy = tip_y;
      return (px * dy - py * dx) / std::sqrt(dx * dx + dy * dy);
    }
    case 7:
      return std::max(radius - 0.92f, 0.72f - std::sqrt((x - 0.5f) * (x - 0.5f) + y * y));
    case 8:
      return std::max(u - 0.95f, v - 0.22f);
    default:
      return std::sqrt((u - 0.54f) * (u - 0.54f) + y * y) - 0.4f;
  }
}

/// Draws the shape of class `label` into 32 x 32 x 3 bytes.
inline void draw_shape(std::int32_t label, Philox& draws, std::span<std::uint8_t> image) {
  constexpr std::size_t side = 32;
  using Colour = std::array<float, 3>;
  const auto between = [&](double low, double high) {
    return static_cast<float>(low + (high - low) * draws.uniform());
  };
  const auto colour = [&] {
    Colour result{};
    for (float& channel : result) channel = between(20, 235);
    return result;
  };

  // A background gradient between two similar colors, and an ink that contrasts with both.
  const Colour ground = colour();
  Colour slope{}, ink{};
  for (float& channel : slope) channel = between(-40, 40);
  const auto contrast = [&] {
    float least = 1e9f;
    for (const float sign : {-1.0f, 1.0f}) {
      float sum = 0;
      for (std::size_t c = 0; c < 3; ++c) sum += std::abs(ink[c] - ground[c] - sign * slope[c]);
      least = std::min(least, sum);
    }
    return least;
  };
  do ink = colour();
  while (contrast() < 150);

  const float angle = between(0, 6.2831853), ground_angle = between(0, 6.2831853);
  const float size = between(8, 13.5), reach = 15.5f - size;
  const float centre_x = 15.5f + reach * between(-1, 1), centre_y = 15.5f + reach * between(-1, 1);
  const float c = std::cos(angle), s = std::sin(angle);
  const float ground_x = std::cos(ground_angle) / 22, ground_y = std::sin(ground_angle) / 22;
  const float noise = between(2, 20);
  for (std::size_t row = 0, at = 0; row < side; ++row)
    for (std::size_t column = 0; column < side; ++column) {
      const float x = static_cast<float>(column) - centre_x, y = static_cast<float>(row) - centre_y;
      const float outside =
          size * distance_to_shape(label, (c * x + s * y) / size, (c * y - s * x) / size);
      const float cover = std::clamp(0.5f - outside, 0.0f, 1.0f);
      const float along = (static_cast<float>(column) - 15.5f) * ground_x +
                          (static_cast<float>(row) - 15.5f) * ground_y;
      std::uint32_t word = draws();
      for (std::size_t channel = 0; channel < 3; ++channel, word >>= 8) {
        const float below = ground[channel] + along * slope[channel];
        const float grain = noise * (static_cast<float>(word & 0xff) - 127.5f) / 127.5f;
        image[at++] = static_cast<std::uint8_t>(
            std::clamp(below + cover * (ink[channel] - below) + grain, 0.0f, 255.0f));
      }
    }
}

inline Images draw_shapes(std::size_t count, std::uint64_t key) {
  return draw_images(count, key, shape(32, 32, 3), "shape", draw_shape);
}

}  // namespace lockstep::datasets::detail

namespace lockstep::datasets {

Splits shapes(Count count, Count test_count, std::uint64_t seed) {
  const auto checked = [](Count n) {
    return static_cast<std::size_t>(n.checked("shapes", "give at least 0 images"));
  };
  const std::size_t of_train = checked(count), of_test = checked(test_count);
  return {"drawn shapes",
          [=] { return detail::draw_shapes(of_train, mix(seed, hash_name("shapes/train"))); },
          [=] { return detail::draw_shapes(of_test, mix(seed, hash_name("shapes/test"))); }};
}

}  // namespace lockstep::datasets
