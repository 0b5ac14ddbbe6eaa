#include "lockstep/layers/regularization/spatial_dropout2d.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

#include "lockstep/reference.hpp"
#include "support/run_kernel.hpp"

namespace ls = lockstep;

namespace {

using Float = ls::Reference<float>;

constexpr auto example = ls::shape(3, 2, 101);
constexpr std::size_t channels = 101;

testing::LayerResult<float> dropped(float rate, std::size_t count,
                                    testing::RunOptions<float> options = {}) {
  const std::vector<float> ones(count * example.size(), 1);
  return testing::run_layer<Float>(ls::SpatialDropout2DOp{example, rate}, count, ones, {}, ones,
                                   options);
}

}  // namespace

TEST_CASE("SpatialDropout2D drops a channel of an example everywhere or nowhere") {
  const auto y = dropped(0.4f, 5).y;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t first = i / example.size() * example.size() + i % channels;
    REQUIRE(y[i] == y[first]);
    REQUIRE((y[i] == 0 || std::abs(y[i] - 1 / 0.6f) < 1e-6f));
  }
}

TEST_CASE("SpatialDropout2D drops its rate of the channels") {
  for (const float rate : {0.1f, 0.25f, 0.5f, 0.9f}) {
    constexpr std::size_t count = 200;
    const auto y = dropped(rate, count).y;
    double zeros = 0;
    for (std::size_t n = 0; n < count; ++n)
      for (std::size_t k = 0; k < channels; ++k) zeros += y[n * example.size() + k] == 0 ? 1 : 0;
    CAPTURE(rate);
    const double draws = count * channels;
    CHECK(std::abs(zeros - draws * static_cast<double>(rate)) <
          4 * std::sqrt(draws * static_cast<double>(rate * (1 - rate))));
  }
}

TEST_CASE("SpatialDropout2D's channels do not depend on how the batch is split") {
  const auto whole = dropped(0.3f, 7, {.first_ordinal = 100}).y;
  for (const std::size_t cut : {1u, 3u, 6u}) {
    auto parts = dropped(0.3f, cut, {.first_ordinal = 100}).y;
    const auto rest = dropped(0.3f, 7 - cut, {.first_ordinal = 100 + cut}).y;
    parts.insert(parts.end(), rest.begin(), rest.end());
    CHECK(parts == whole);
  }
}

TEST_CASE("SpatialDropout2D's channels differ by seed, pass, layer and example") {
  const auto y = dropped(0.5f, 2).y;
  CHECK(dropped(0.5f, 2).y == y);
  CHECK(dropped(0.5f, 2, {.seed = 2}).y != y);
  CHECK(dropped(0.5f, 2, {.pass = 1}).y != y);
  CHECK(dropped(0.5f, 2, {.key = 8}).y != y);
  CHECK(dropped(0.5f, 2, {.first_ordinal = 2}).y != y);
}

TEST_CASE("SpatialDropout2D reads word k of the example's stream for channel k") {
  const auto y = dropped(0.5f, 2, {.seed = 11, .pass = 3, .key = 13, .first_ordinal = 5}).y;
  const std::uint64_t key = ls::mix(ls::mix(11, 13), 3);
  for (std::size_t n = 0; n < 2; ++n) {
    ls::Philox words(key, 5 + n);
    for (std::size_t k = 0; k < channels; ++k)
      REQUIRE((y[n * example.size() + k] == 0) == (words() < 0x80000000u));
  }
}

TEST_CASE("SpatialDropout2D passes the gradient where it passed the value") {
  const auto run = dropped(0.4f, 3);
  CHECK(run.dx == run.y);
}

TEST_CASE("SpatialDropout2D changes nothing outside training or at rate 0") {
  const auto x = testing::as<float>(testing::normal_values(2 * example.size(), 5));
  CHECK(testing::run_layer<Float>(ls::SpatialDropout2DOp{example, 0.5f}, 2, x, {}, {},
                                  {.training = false})
            .y == x);
  const auto run = testing::run_layer<Float>(ls::SpatialDropout2DOp{example, 0}, 2, x, {}, x);
  CHECK(run.y == x);
  CHECK(run.dx == x);
}
