#include "lockstep/data/sources/drawn_shapes.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <set>
#include <vector>

#include "lockstep/data/sources/cifar10.hpp"

namespace {
namespace ls = lockstep;
constexpr std::size_t pixels = 32 * 32 * 3;
}  // namespace

TEST_CASE("a drawn shape depends on seed and index alone") {
  const auto few = ls::datasets::shapes(37, 5, 3).train(),
             many = ls::datasets::shapes(90, 5, 3).train();
  CHECK(std::equal(few.features().begin(), few.features().end(), many.features().begin()));
  CHECK(std::equal(few.targets().begin(), few.targets().end(), many.targets().begin()));
  const auto other = ls::datasets::shapes(37, 37, 4);
  const auto train = other.train(), test = other.test();
  CHECK(!std::equal(few.features().begin(), few.features().end(), train.features().begin()));
  CHECK(!std::equal(test.features().begin(), test.features().end(), train.features().begin()));
}

TEST_CASE("drawn shapes have the type and the shape of CIFAR-10, and each class in each ten") {
  static_assert(
      std::is_same_v<decltype(ls::datasets::shapes()), decltype(ls::datasets::cifar10(""))>);
  const auto data = ls::datasets::shapes(200, 30).train();
  CHECK(data.shape() == ls::shape(32, 32, 3));
  CHECK(data.target_shape() == ls::Shape{});
  CHECK(ls::datasets::shapes(200, 30).test().size() == 30u);
  std::set<std::vector<std::int32_t>> orders;
  for (std::size_t ten = 0; ten < 200; ten += 10) {
    const auto labels = data.targets().subspan(ten, 10);
    CHECK(std::set<std::int32_t>(labels.begin(), labels.end()).size() == 10);
    orders.emplace(labels.begin(), labels.end());
  }
  CHECK(orders.size() > 10);
}

TEST_CASE("no two drawn shapes are alike, and no class has a colour of its own") {
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

TEST_CASE("each shape has an inside and an outside, and is whole in the circle of its size") {
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
