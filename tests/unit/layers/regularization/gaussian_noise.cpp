#include "lockstep/layers/regularization/gaussian_noise.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

#include "lockstep/reference.hpp"
#include "support/run_kernel.hpp"

namespace ls = lockstep;

namespace {

using Double = ls::Reference<double>;

constexpr auto example = ls::shape(7, 143);

std::vector<double> noise(float stddev, std::size_t count,
                          testing::RunOptions<double> options = {}) {
  const std::vector<double> zeros(count * example.size(), 0);
  return testing::run_layer<Double>(ls::GaussianNoiseOp{example, stddev}, count, zeros, {}, zeros,
                                    options)
      .y;
}

}  // namespace

TEST_CASE("GaussianNoise has mean 0, its standard deviation, and a normal distribution") {
  for (const float stddev : {0.1f, 1.0f}) {
    auto z = noise(stddev, 100);
    for (double& v : z) v /= static_cast<double>(stddev);
    const double n = static_cast<double>(z.size());
    double sum = 0, squares = 0, fourth = 0;
    for (const double v : z) sum += v, squares += v * v, fourth += v * v * v * v;
    CAPTURE(stddev);
    CHECK(std::abs(sum / n) < 4 / std::sqrt(n));
    CHECK(std::abs(squares / n - 1) < 4 * std::sqrt(2 / n));
    CHECK(std::abs(fourth / n - 3) < 4 * std::sqrt(96 / n));
    // Kolmogorov-Smirnov test at 1e-4.
    std::sort(z.begin(), z.end());
    double distance = 0;
    for (std::size_t i = 0; i < z.size(); ++i) {
      const double below = std::erfc(-z[i] / std::sqrt(2.0)) / 2;
      distance = std::max(distance, std::abs(below - (static_cast<double>(i) + 0.5) / n));
    }
    CHECK(distance < 2.23 / std::sqrt(n));
  }
}

TEST_CASE("GaussianNoise of neighbors in an example and in a batch is uncorrelated") {
  const auto z = noise(1, 100);
  const std::size_t size = example.size(), n = 99 * size;
  double beside = 0, two_on = 0, below = 0, sizes = 0;
  for (std::size_t i = 0; i < n; ++i) {
    beside += z[i] * z[i + 1];
    two_on += z[i] * z[i + 2];
    below += z[i] * z[i + size];
    sizes += (z[i] * z[i] - 1) * (z[i + 1] * z[i + 1] - 1) / 2;
  }
  const double bound = 4 * std::sqrt(static_cast<double>(n));
  CHECK(std::abs(beside) < bound);
  CHECK(std::abs(two_on) < bound);
  CHECK(std::abs(below) < bound);
  CHECK(std::abs(sizes) < bound);
}

TEST_CASE("GaussianNoise does not depend on how the batch is split") {
  const auto whole = noise(0.3f, 7, {.first_ordinal = 100});
  for (const std::size_t cut : {1u, 3u, 6u}) {
    auto parts = noise(0.3f, cut, {.first_ordinal = 100});
    const auto rest = noise(0.3f, 7 - cut, {.first_ordinal = 100 + cut});
    parts.insert(parts.end(), rest.begin(), rest.end());
    CHECK(parts == whole);
  }
}

TEST_CASE("GaussianNoise differs by seed, pass, layer and example") {
  const auto z = noise(0.5f, 2);
  CHECK(noise(0.5f, 2) == z);
  CHECK(noise(0.5f, 2, {.seed = 2}) != z);
  CHECK(noise(0.5f, 2, {.pass = 1}) != z);
  CHECK(noise(0.5f, 2, {.key = 8}) != z);
  CHECK(noise(0.5f, 2, {.first_ordinal = 2}) != z);
}

TEST_CASE("GaussianNoise draws pairs of numbers from pairs of words of the stream") {
  const auto z = noise(0.5f, 2, {.seed = 11, .pass = 3, .key = 13, .first_ordinal = 5});
  const std::uint64_t key = ls::mix(ls::mix(11, 13), 3);
  for (std::size_t n = 0; n < 2; ++n) {
    ls::Philox words(key, 5 + n);
    for (std::size_t i = 0; i + 1 < example.size(); i += 2) {
      const double first = words(), second = words();
      const double radius = 0.5 * std::sqrt(-2 * std::log((first + 1) / 4294967296.0)),
                   angle = 2 * 3.14159265358979323846 * second / 4294967296.0;
      REQUIRE(std::abs(z[n * example.size() + i] - radius * std::cos(angle)) < 1e-14);
      REQUIRE(std::abs(z[n * example.size() + i + 1] - radius * std::sin(angle)) < 1e-14);
    }
  }
}

TEST_CASE("GaussianNoise adds to the input and passes the gradient") {
  const auto x = testing::normal_values(2 * example.size(), 5),
             dy = testing::normal_values(2 * example.size(), 6);
  const ls::GaussianNoiseOp op{example, 0.25f};
  const auto run = testing::run_layer<Double>(op, 2, x, {}, dy);
  const auto z = noise(0.25f, 2);
  for (std::size_t i = 0; i < x.size(); ++i) REQUIRE(run.y[i] == x[i] + z[i]);
  CHECK(run.dx == dy);
}

TEST_CASE("GaussianNoise changes nothing outside training or at deviation 0") {
  const auto x = testing::normal_values(2 * example.size(), 5);
  CHECK(testing::run_layer<Double>(ls::GaussianNoiseOp{example, 0.5f}, 2, x, {}, {},
                                   {.training = false})
            .y == x);
  CHECK(testing::run_layer<Double>(ls::GaussianNoiseOp{example, 0}, 2, x, {}, x).y == x);
}
