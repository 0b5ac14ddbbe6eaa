#pragma once

#include "lockstep/data/sources/digits.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include "lockstep/core/rng.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/sources/draw_images.hpp"

namespace lockstep::datasets::detail {

/// A pen that records line segments. x points right, y down; a digit lies within [-0.6, 0.6] x [-1,
/// 1].
class Pen {
 public:
  struct Point {
    float x, y;
  };
  struct Segment {
    Point from, to;
  };

  void move(float x, float y) { at_ = {x, y}; }
  void line(float x, float y) {
    segments_[count_++] = {at_, {x, y}};
    at_ = {x, y};
  }
  /// Draws the arc (cx + rx cos a, cy + ry sin a) for a from `from` to `to` degrees, connected to
  /// the current position.
  void arc(float cx, float cy, float rx, float ry, float from, float to) {
    constexpr int pieces = 12;
    for (int i = 0; i <= pieces; ++i) {
      const float a = (from + (to - from) * static_cast<float>(i) / pieces) * 0.017453293f;
      line(cx + rx * std::cos(a), cy + ry * std::sin(a));
    }
  }
  /// Like `arc`, but lifts the pen first.
  void free_arc(float cx, float cy, float rx, float ry, float from, float to) {
    move(cx + rx * std::cos(from * 0.017453293f), cy + ry * std::sin(from * 0.017453293f));
    arc(cx, cy, rx, ry, from, to);
  }
  std::span<Segment> segments() { return {segments_.data(), count_}; }

 private:
  Point at_{};
  std::size_t count_ = 0;
  std::array<Segment, 32> segments_{};
};

/// The strokes of a digit; `style`, 0 to 3, selects a way of writing it.
inline Pen write_digit(int digit, std::uint32_t style) {
  Pen pen;
  switch (digit) {
    case 0:
      pen.free_arc(0, 0, 0.58f, 1, -90, 270);
      break;
    case 1:
      pen.move(0.05f, -1);
      if (style % 2 == 1) {
        pen.move(-0.35f, -0.6f);
        pen.line(0.05f, -1);
      }
      pen.line(0.02f, 1);
      if (style == 3) {
        pen.move(-0.35f, 1);
        pen.line(0.4f, 1);
      }
      break;
    case 2:
      pen.free_arc(0, -0.45f, 0.55f, 0.55f, 190, 400);
      pen.line(-0.6f, 1);
      if (style == 0) pen.arc(-0.4f, 0.8f, 0.2f, 0.15f, 180, 360);
      pen.line(0.62f, style < 2 ? 1 : 0.9f);
      break;
    case 3:
      pen.free_arc(-0.05f, -0.5f, 0.52f, 0.5f, 200, 450);
      pen.arc(-0.02f, 0.48f, 0.6f, 0.52f, 270, 515);
      break;
    case 4:
      if (style % 2 == 0) {
        pen.move(0.25f, 1);
        pen.line(0.25f, -1);
        pen.line(-0.6f, 0.35f);
        pen.line(0.62f, 0.35f);
      } else {
        pen.move(-0.45f, -0.9f);
        pen.line(-0.55f, 0.2f);
        pen.line(0.6f, 0.15f);
        pen.move(0.35f, -0.85f);
        pen.line(0.25f, 1);
      }
      break;
    case 5:
      pen.move(0.52f, -1);
      pen.line(-0.42f, -0.98f);
      pen.line(-0.48f, -0.1f);
      pen.arc(-0.02f, 0.38f, 0.58f, 0.6f, 225, 505);
      break;
    case 6:
      pen.move(style % 2 == 0 ? 0.4f : 0.15f, -1);
      pen.line(-0.2f, -0.62f);
      pen.line(-0.48f, -0.05f);
      pen.arc(0, 0.46f, 0.54f, 0.53f, 180, 540);
      break;
    case 7:
      pen.move(-0.58f, -0.95f);
      pen.line(0.58f, -1);
      pen.line(0.1f, 0.05f);
      pen.line(-0.12f, 1);
      if (style == 0) {
        pen.move(-0.25f, 0);
        pen.line(0.45f, -0.05f);
      }
      break;
    case 8:
      pen.free_arc(0, -0.52f, 0.45f, 0.47f, 90, 450);
      pen.free_arc(0, 0.48f, 0.56f, 0.52f, -90, 270);
      break;
    default:
      pen.free_arc(0, -0.46f, 0.53f, 0.53f, 0, -360);
      pen.line(0.5f, 0.1f);
      if (style % 2 == 0)
        pen.line(0.4f, 1);
      else
        pen.arc(-0.02f, 0.5f, 0.5f, 0.5f, 0, 150);
  }
  return pen;
}

/// Draws `digit` into 28 x 28 bytes.
inline void draw_digit(int digit, Philox& draws, std::span<std::uint8_t> image) {
  constexpr int side = 28;
  const auto between = [&](double low, double high) __attribute__((noinline)) {
    return static_cast<float>(low + (high - low) * draws.uniform());
  };
  Pen pen = write_digit(digit, draws.below(4));

  // Handwriting: a smooth bend, then an affine map to pixels.
  const float bend_x = between(-0.1, 0.1), bend_y = between(-0.08, 0.08);
  const float phase_x = between(0, 6.283), phase_y = between(0, 6.283);
  const float angle = between(-0.22, 0.22), shear = between(-0.25, 0.25);
  const float width = between(7.5, 10.5), height = between(7.8, 9.8);
  const float centre_x = 13.5f + between(-1.8, 1.8), centre_y = 13.5f + between(-1.8, 1.8);
  const float c = std::cos(angle), s = std::sin(angle);
  const auto to_pixels = [&](Pen::Point p) {
    const float x = (p.x + bend_x * std::sin(2.5f * p.y + phase_x) - shear * p.y) * width;
    const float y = (p.y + bend_y * std::sin(3 * p.x + phase_y)) * height;
    return Pen::Point{centre_x + c * x - s * y, centre_y + s * x + c * y};
  };

  // Squared distance of each pixel to the nearest stroke, within reach of the strokes.
  const float radius = between(0.8, 1.7), reach = radius + 0.5f;
  std::array<float, side * side> distance;
  distance.fill(reach * reach);
  for (const Pen::Segment& segment : pen.segments()) {
    const Pen::Point a = to_pixels(segment.from), b = to_pixels(segment.to);
    const float dx = b.x - a.x, dy = b.y - a.y;
    const float inverse = 1 / std::max(dx * dx + dy * dy, 1e-6f);
    const auto low = [&](float u, float v) {
      return std::clamp(static_cast<int>(std::ceil(std::min(u, v) - reach)), 0, side);
    };
    const auto high = [&](float u, float v) {
      return std::clamp(static_cast<int>(std::floor(std::max(u, v) + reach)) + 1, 0, side);
    };
    for (int row = low(a.y, b.y); row < high(a.y, b.y); ++row)
      for (int column = low(a.x, b.x); column < high(a.x, b.x); ++column) {
        const float px = static_cast<float>(column) - a.x, py = static_cast<float>(row) - a.y;
        const float along = std::clamp((px * dx + py * dy) * inverse, 0.0f, 1.0f);
        const float ex = px - along * dx, ey = py - along * dy;
        float& nearest = distance[static_cast<std::size_t>(row * side + column)];
        nearest = std::min(nearest, ex * ex + ey * ey);
      }
  }

  // Ink with soft edges, plus noise; clamping drops its negative half on the black background.
  const float ink = between(190, 255), noise = between(0, 30);
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < distance.size(); ++i) {
    word = i % 4 == 0 ? draws() : word >> 8;
    const float cover = std::clamp(reach - std::sqrt(distance[i]), 0.0f, 1.0f);
    const float grain = noise * (static_cast<float>(word & 0xff) - 127.5f) / 127.5f;
    image[i] = static_cast<std::uint8_t>(std::clamp(ink * cover + grain, 0.0f, 255.0f));
  }
}

inline Images draw_digits(std::size_t count, std::uint64_t key) {
  return draw_images(count, key, shape(28, 28, 1), "strokes", draw_digit);
}

}  // namespace lockstep::datasets::detail

namespace lockstep::datasets {

Splits digits(Count count, Count test_count, std::uint64_t seed) {
  const auto checked = [](Count n) {
    return static_cast<std::size_t>(n.checked("digits", "give at least 0 images"));
  };
  const std::size_t of_train = checked(count), of_test = checked(test_count);
  const auto part = [seed](std::size_t digits, const char* name) {
    return [=] { return detail::draw_digits(digits, mix(seed, hash_name(name))); };
  };
  return {"drawn digits", part(of_train, "digits/train"), part(of_test, "digits/test")};
}

}  // namespace lockstep::datasets
