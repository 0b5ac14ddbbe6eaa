#include "lockstep/data/images/per_image_standardization.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "lockstep/data/operations/cache.hpp"
#include "unit/data/image_support.hpp"

namespace ls = lockstep;
using support::gather_all;

namespace {

/// tf.image's formula for one image, in long double.
std::vector<long double> standardized(const std::vector<double>& x) {
  long double mean = 0, variance = 0;
  for (const double v : x) mean += v;
  mean /= static_cast<long double>(x.size());
  for (const double v : x) variance += (v - mean) * (v - mean);
  variance /= static_cast<long double>(x.size());
  const long double deviation =
      std::max(std::sqrt(variance), 1 / std::sqrt(static_cast<long double>(x.size())));
  std::vector<long double> result;
  for (const double v : x) result.push_back((v - mean) / deviation);
  return result;
}

template <class T>
double worst(const std::vector<T>& x, const std::vector<long double>& wanted) {
  REQUIRE(x.size() == wanted.size());
  long double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<long double>(x[i]) - wanted[i]));
  return static_cast<double>(worst);
}

}  // namespace

TEST_CASE("per_image_standardization follows tf.image's formula for each image") {
  for (const ls::Shape s : {ls::shape(32, 32, 3), ls::shape(3, 3, 1), ls::shape(1, 1, 5)}) {
    const auto data = support::images(4, s);
    const auto before = gather_all<double>(data).x;
    const auto narrow = gather_all<float>(data | ls::per_image_standardization).x;
    const auto wide = gather_all<double>(data | ls::per_image_standardization).x;
    for (std::size_t n = 0; n < 4; ++n) {
      const auto part = [&](const auto& all) {
        const auto from = all.begin() + static_cast<std::ptrdiff_t>(n * s.size());
        return std::vector(from, from + static_cast<std::ptrdiff_t>(s.size()));
      };
      const auto wanted = standardized(part(before));
      CHECK(worst(part(wide), wanted) < 1e-13);
      CHECK(worst(part(narrow), wanted) < 1e-6);
    }
  }
}

TEST_CASE("per_image_standardization matches TensorFlow 2.21") {
  // tf.image.per_image_standardization(tf.reshape(tf.constant(x, tf.float32), [2, 2, 1]))
  const auto meets = [](std::vector<float> x, const std::vector<float>& wanted) {
    const auto y = gather_all<float>(ls::tensors(std::move(x), ls::shape(2, 2, 1), std::vector{0}) |
                                     ls::per_image_standardization)
                       .x;
    for (std::size_t i = 0; i < 4; ++i) CHECK(std::abs(y[i] - wanted[i]) < 1e-6f);
  };
  meets({1, 2, 3, 10}, {-0.8485281467f, -0.5656854511f, -0.2828427255f, 1.6970562935f});
  meets({200, 200, 201, 255}, {-0.5913440585f, -0.5913440585f, -0.5491051674f, 1.7317932844f});
  meets({0.1f, 0.2f, 0.3f, 0.2f}, {-0.2f, 0, 0.2f, 0});
}

TEST_CASE("an image of one color becomes zeros, a nearly constant one is divided by 1/sqrt(size)") {
  const auto flat = ls::tensors(std::vector<std::uint8_t>(3072, 255), ls::shape(32, 32, 3),
                                std::vector<std::int32_t>{1}) |
                    ls::per_image_standardization;
  CHECK(gather_all<float>(flat).x == std::vector<float>(3072, 0.0f));

  std::vector<float> x(100, 0.5f);
  x[0] = 1.0f;  // standard deviation 0.0497, below 1 / sqrt(100)
  const auto near = ls::tensors(x, ls::shape(10, 10, 1), std::vector{0});
  const auto y = gather_all<double>(near | ls::per_image_standardization).x;
  CHECK(std::abs(y[0] - 4.95) < 1e-13);
  CHECK(std::abs(y[1] + 0.05) < 1e-13);
}

TEST_CASE("standardized images may be cached, and need height, width and channels") {
  const auto data = support::images(3, ls::shape(8, 8, 3)) | ls::per_image_standardization;
  CHECK(gather_all<float>(data | ls::cache) == gather_all<float>(data));
  CHECK_THROWS_AS(support::range(2) | ls::per_image_standardization, ls::UsageError);
}
