/// \file
/// RandomContrast and RandomBrightness.
#include "lockstep/layers/preprocessing/random_color.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "unit/layers/preprocessing/augmentation_support.hpp"

namespace ls = lockstep;
using augmented::forward;

namespace {
constexpr auto in = ls::shape(3, 5, 2);
const testing::RunOptions<double> options{.seed = 4, .pass = 9, .key = 2, .first_ordinal = 70};
constexpr std::size_t count = 50;
}  // namespace

TEST_CASE("RandomContrast changes the distance from a channel's mean by one number an image") {
  const ls::RandomContrastOp op{in, {0.75f, 0.5f}, {1, 9}};
  const auto x = augmented::recorded_image(in);
  const auto y = forward<double>(op, augmented::recorded_image(in, count), options);
  double mean[2] = {0, 0};
  for (std::size_t i = 0; i < x.size(); ++i) mean[i % 2] += x[i] / 15;
  for (std::size_t n = 0; n < count; ++n) {
    const double contrast = 0.25 + augmented::draws_of(options, 70 + n).uniform() * 1.25;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double wanted = std::clamp((x[i] - mean[i % 2]) * contrast + mean[i % 2], 1.0, 9.0);
      REQUIRE(std::abs(y[n * x.size() + i] - wanted) < 1e-12);
    }
  }
}

TEST_CASE("RandomBrightness adds one number an image, a part of the range") {
  const ls::RandomBrightnessOp op{in, {-0.5f, 0.25f}, {1, 9}};
  const auto x = augmented::recorded_image(in);
  const auto y = forward<double>(op, augmented::recorded_image(in, count), options);
  for (std::size_t n = 0; n < count; ++n) {
    const double delta = (-0.5 + augmented::draws_of(options, 70 + n).uniform() * 0.75) * 8;
    for (std::size_t i = 0; i < x.size(); ++i)
      REQUIRE(std::abs(y[n * x.size() + i] - std::clamp(x[i] + delta, 1.0, 9.0)) < 1e-12);
  }
}
