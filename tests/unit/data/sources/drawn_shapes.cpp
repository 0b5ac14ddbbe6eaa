#include "lockstep/data/sources/drawn_shapes.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <set>
#include <vector>

#include "lockstep/data/sources/cifar10.hpp"
#include "unit/data/drawn_images.hpp"

namespace {
namespace ls = lockstep;
constexpr std::size_t pixels = 32 * 32 * 3;
}  // namespace

TEST_CASE("a drawn shape depends on seed and index alone") {
  drawn::check_seed_and_index([](std::uint64_t train, std::uint64_t test, std::uint64_t seed) {
    return ls::datasets::shapes(train, test, seed);
  });
}

TEST_CASE("drawn shapes have CIFAR-10's type and shape, and each class once in ten images") {
  static_assert(
      std::is_same_v<decltype(ls::datasets::shapes()), decltype(ls::datasets::cifar10(""))>);
  drawn::check_classes(ls::datasets::shapes(200, 30), ls::shape(32, 32, 3));
}

TEST_CASE("no two drawn shapes are equal, and color does not reveal the class") {
  const std::size_t count = 2000;
  const auto data = ls::datasets::shapes(count).train();
  std::set<std::vector<std::uint8_t>> seen;
  std::array<std::array<double, 3>, 10> mean{};
  for (std::size_t i = 0; i < count; ++i) {
    const auto image = data.features().subspan(i * pixels, pixels);
    seen.emplace(image.begin(), image.end());
    auto& own = mean[static_cast<std::size_t>(data.targets()[i])];
    for (std::size_t p = 0; p < pixels; ++p)
      own[p % 3] += image[p] / (1024.0 * static_cast<double>(count) / 10);
  }
  CHECK(seen.size() == count);
  for (const auto& own : mean)
    for (const double channel : own) CHECK(std::abs(channel - 127.5) < 15);
}

TEST_CASE("each shape has an inside and an outside, and fits into the circle of its size") {
  for (std::int32_t label = 0; label < 10; ++label) {
    CAPTURE(label);
    std::size_t inside = 0, beyond = 0;
    for (float y = -1.5f; y <= 1.5f; y += 0.05f)
      for (float x = -1.5f; x <= 1.5f; x += 0.05f) {
        if (ls::datasets::detail::distance_to_shape(label, x, y) >= 0) continue;
        ++inside;
        beyond += std::sqrt(x * x + y * y) > 1.001f;
      }
    CHECK(inside > 150);
    CHECK(beyond == 0);
  }
}
