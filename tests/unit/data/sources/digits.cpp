#include "lockstep/data/sources/digits.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <set>

#include "lockstep/data/sources/mnist.hpp"
#include "unit/data/drawn_images.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;

namespace {
constexpr std::size_t pixels = 28 * 28;

std::span<const std::uint8_t> image(const ls::datasets::Images& data, std::size_t i) {
  return data.features().subspan(i * pixels, pixels);
}

template <class A, class B>
double distance(const A& a, const B& b) {
  double sum = 0;
  for (std::size_t i = 0; i < pixels; ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += d * d;
  }
  return sum;
}
}  // namespace

TEST_CASE("a drawn digit depends on seed and index alone") {
  drawn::check_seed_and_index([](std::uint64_t train, std::uint64_t test, std::uint64_t seed) {
    return ls::datasets::digits(train, test, seed);
  });
}

TEST_CASE("drawn digits have MNIST's type and shape, and each class once in ten images") {
  static_assert(
      std::is_same_v<decltype(ls::datasets::digits()), decltype(ls::datasets::mnist(""))>);
  drawn::check_classes(ls::datasets::digits(200, 30), ls::shape(28, 28, 1));
}

TEST_CASE("no two drawn digits are equal, and the ink stays off the border") {
  const auto data = ls::datasets::digits(300).train();
  std::set<std::vector<std::uint8_t>> seen;
  double border = 0, middle = 0;
  for (std::size_t i = 0; i < 300; ++i) {
    const auto one = image(data, i);
    seen.emplace(one.begin(), one.end());
    for (std::size_t j = 0; j < 28; ++j) {
      border += one[j] + one[27 * 28 + j];
      middle += one[13 * 28 + j] + one[14 * 28 + j];
    }
  }
  CHECK(seen.size() == 300);
  CHECK(border < middle / 10);
}

TEST_CASE("drawn digits can be learned, but not from class means") {
  constexpr std::size_t known = 1500, asked = 300;
  const auto data = ls::datasets::digits(known, asked);
  const auto train = data.train(), test = data.test();
  std::vector<std::vector<double>> mean(10, std::vector<double>(pixels));
  for (std::size_t i = 0; i < known; ++i)
    for (std::size_t j = 0; j < pixels; ++j)
      mean[static_cast<std::size_t>(train.targets()[i])][j] += image(train, i)[j] / (known / 10.0);
  int by_neighbour = 0, by_mean = 0;
  for (std::size_t i = 0; i < asked; ++i) {
    double best = std::numeric_limits<double>::max(), best_mean = best;
    std::int32_t label = -1, mean_label = -1;
    for (std::size_t k = 0; k < known; ++k)
      if (const double d = distance(image(test, i), image(train, k)); d < best) {
        best = d;
        label = train.targets()[k];
      }
    for (std::size_t k = 0; k < 10; ++k)
      if (const double d = distance(image(test, i), mean[k]); d < best_mean) {
        best_mean = d;
        mean_label = static_cast<std::int32_t>(k);
      }
    by_neighbour += label == test.targets()[i];
    by_mean += mean_label == test.targets()[i];
  }
  INFO("nearest neighbour " << by_neighbour << ", nearest mean " << by_mean << " of " << asked);
  CHECK(by_neighbour >= 285);
  CHECK(by_mean < by_neighbour);
}
