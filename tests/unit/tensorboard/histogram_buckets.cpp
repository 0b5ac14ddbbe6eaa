#include "lockstep/tensorboard/histogram_buckets.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/core/error.hpp"

namespace ls = lockstep;

namespace {
constexpr float inf = std::numeric_limits<float>::infinity();
const float not_a_number = std::nanf("");

double count_of(const std::vector<ls::HistogramBucket>& buckets) {
  double count = 0;
  for (const auto& b : buckets) count += b.count;
  return count;
}
}  // namespace

TEST_CASE("a histogram counts values in buckets of equal width") {
  const std::vector<float> values{0, 1, 1, 2, 3, 3.5f, 4};
  const std::vector<ls::HistogramBucket> expected{{0, 1, 1}, {1, 2, 2}, {2, 3, 1}, {3, 4, 3}};
  CHECK(ls::histogram_of(values, 4) == expected);
}

TEST_CASE("a histogram has 30 adjacent buckets that hold all values") {
  std::vector<float> values;
  for (int i = 0; i < 1000; ++i) values.push_back(std::sin(static_cast<float>(i)) * 1e-3f);
  const auto buckets = ls::histogram_of(values);
  REQUIRE(buckets.size() == 30);
  for (std::size_t i = 1; i < 30; ++i) CHECK(buckets[i].left == buckets[i - 1].right);
  CHECK(count_of(buckets) == 1000);
  for (const auto& b : buckets) {
    double expected = 0;
    for (const float v : values) expected += v >= b.left && v < b.right ? 1 : 0;
    if (b == buckets.back()) expected += 1;    // the largest value
    CHECK(std::abs(b.count - expected) <= 1);  // a value at a limit may be rounded across it
  }
}

TEST_CASE("equal values are in the last of buckets without width, as in TensorBoard") {
  const std::vector<float> values(5, 0.25f);
  CHECK(ls::histogram_of(values, 3) ==
        std::vector<ls::HistogramBucket>{{0.25, 0.25, 0}, {0.25, 0.25, 0}, {0.25, 0.25, 5}});
  CHECK(ls::histogram_of(values).size() == 30);
}

TEST_CASE("a histogram leaves out values that are not finite") {
  const std::vector<ls::HistogramBucket> zeros(30, {0, 0, 0});
  CHECK(ls::histogram_of({}) == zeros);
  CHECK(ls::histogram_of(std::vector<float>{not_a_number, inf, -inf}) == zeros);
  CHECK(ls::histogram_of(std::vector<float>{not_a_number, 0, inf, 1, -inf}, 2) ==
        std::vector<ls::HistogramBucket>{{0, 0.5, 1}, {0.5, 1, 1}});
}

TEST_CASE("a histogram of the whole range of floats does not overflow") {
  const float most = std::numeric_limits<float>::max();
  const auto buckets = ls::histogram_of(std::vector<float>{-most, 0, most});
  CHECK(count_of(buckets) == 3);
  CHECK(buckets.front().left == -static_cast<double>(most));
  CHECK(buckets.back().right == static_cast<double>(most));
}

TEST_CASE("a histogram needs a bucket") {
  CHECK_THROWS_AS(ls::histogram_of(std::vector<float>{1}, 0), ls::UsageError);
}
