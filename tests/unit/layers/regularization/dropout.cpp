#include "lockstep/layers/regularization/dropout.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "lockstep/reference.hpp"
#include "support/run_kernel.hpp"

namespace ls = lockstep;

namespace {

using Float = ls::Reference<float>;

constexpr auto example = ls::shape(1001);

std::vector<float> dropped(float rate, std::size_t count, testing::RunOptions<float> options = {}) {
  const std::vector<float> ones(count * example.size(), 1);
  return testing::run_layer<Float>(ls::DropoutOp{example, rate}, count, ones, {}, ones, options).y;
}

}  // namespace

TEST_CASE("Dropout drops its rate of the elements and scales the others") {
  for (const float rate : {0.1f, 0.25f, 0.5f, 0.9f}) {
    const auto y = dropped(rate, 100);
    std::size_t zeros = 0, scaled = 0;
    for (const float v : y) {
      if (v == 0) ++zeros;
      if (std::abs(v - 1 / (1 - rate)) < 1e-6f) ++scaled;
    }
    CAPTURE(rate);
    REQUIRE(zeros + scaled == y.size());
    const double n = static_cast<double>(y.size());
    const double deviation = std::sqrt(n * static_cast<double>(rate * (1 - rate)));
    CHECK(std::abs(static_cast<double>(zeros) - n * static_cast<double>(rate)) < 4 * deviation);
  }
}

TEST_CASE("Dropout treats neighbors in an example and in a batch independently") {
  const auto y = dropped(0.5f, 200);
  std::size_t beside = 0, below = 0;
  const std::size_t size = example.size(), n = 199 * size;
  for (std::size_t i = 0; i < n; ++i) {
    beside += (y[i] == 0) == (y[i + 1] == 0) ? 1 : 0;
    below += (y[i] == 0) == (y[i + size] == 0) ? 1 : 0;
  }
  const double half = static_cast<double>(n) / 2, bound = 4 * std::sqrt(static_cast<double>(n) / 4);
  CHECK(std::abs(static_cast<double>(beside) - half) < bound);
  CHECK(std::abs(static_cast<double>(below) - half) < bound);
}

TEST_CASE("Dropout's mask does not depend on how the batch is split") {
  const auto whole = dropped(0.3f, 7, {.first_ordinal = 100});
  for (const std::size_t cut : {1u, 3u, 6u}) {
    auto parts = dropped(0.3f, cut, {.first_ordinal = 100});
    const auto rest = dropped(0.3f, 7 - cut, {.first_ordinal = 100 + cut});
    parts.insert(parts.end(), rest.begin(), rest.end());
    CHECK(parts == whole);
  }
}

TEST_CASE("Dropout's mask differs by seed, pass, layer and example") {
  const auto mask = dropped(0.5f, 2);
  CHECK(dropped(0.5f, 2) == mask);
  CHECK(dropped(0.5f, 2, {.seed = 2}) != mask);
  CHECK(dropped(0.5f, 2, {.pass = 1}) != mask);
  CHECK(dropped(0.5f, 2, {.key = 8}) != mask);
  CHECK(dropped(0.5f, 2, {.first_ordinal = 2}) != mask);
}

TEST_CASE("Dropout passes the gradient where it passed the value") {
  const std::vector<float> ones(3 * example.size(), 1);
  const auto run = testing::run_layer<Float>(ls::DropoutOp{example, 0.4f}, 3, ones, {}, ones);
  CHECK(run.dx == run.y);
}

TEST_CASE("Dropout changes nothing outside training or at rate 0") {
  const auto x = testing::as<float>(testing::normal_values(2 * example.size(), 5));
  CHECK(testing::run_layer<Float>(ls::DropoutOp{example, 0.5f}, 2, x, {}, {}, {.training = false})
            .y == x);
  const auto run = testing::run_layer<Float>(ls::DropoutOp{example, 0}, 2, x, {}, x);
  CHECK(run.y == x);
  CHECK(run.dx == x);
}

TEST_CASE("Dropout reads word i % 4 of Philox block i / 4 of the example's stream") {
  const auto y = dropped(0.5f, 2, {.seed = 11, .pass = 3, .key = 13, .first_ordinal = 5});
  const std::uint64_t key = ls::mix(ls::mix(11, 13), 3);
  for (std::size_t n = 0; n < 2; ++n) {
    ls::Philox words(key, 5 + n);
    for (std::size_t i = 0; i < example.size(); ++i)
      REQUIRE((y[n * example.size() + i] == 0) == (words() < 0x80000000u));
  }
}
