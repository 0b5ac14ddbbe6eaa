#include "lockstep/tensorboard/weight_images.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace ls = lockstep;

namespace {
using Pixels = std::vector<std::uint8_t>;

/// Images of a tensor with the values 0, 1, 2, ....
ls::detail::WeightImages images_of(const ls::Shape& shape, std::size_t most = 3) {
  std::vector<float> values(shape.size());
  std::iota(values.begin(), values.end(), 0.0f);
  return ls::detail::weight_images({"w", shape, values, {}}, most);
}
}  // namespace

TEST_CASE("a vector is one row") {
  const auto shown = images_of(ls::shape(6));
  CHECK(shown.image == ls::shape(1, 6, 1));
  CHECK(shown.pixels == Pixels{0, 51, 102, 153, 204, 255});
}

TEST_CASE("a matrix is at least as wide as high") {
  CHECK(images_of(ls::shape(2, 3)).image == ls::shape(2, 3, 1));
  CHECK(images_of(ls::shape(2, 3)).pixels == Pixels{0, 51, 102, 153, 204, 255});
  CHECK(images_of(ls::shape(3, 2)).image == ls::shape(2, 3, 1));
  CHECK(images_of(ls::shape(3, 2)).pixels == Pixels{0, 102, 204, 51, 153, 255});
}

TEST_CASE("a kernel with one input channel has an image for each filter") {
  const auto shown = images_of(ls::shape(1, 2, 1, 3), 2);  // (2, 3)
  CHECK(shown.image == ls::shape(2, 3, 1));
  const auto filters = images_of(ls::shape(2, 2, 1, 4), 2);
  CHECK(filters.image == ls::shape(2, 2, 1));
  // Filter f has the values f, f + 4, f + 8, f + 12 of 0, ..., 15.
  CHECK(filters.pixels == Pixels{0, 68, 136, 204, 17, 85, 153, 221});
}

TEST_CASE("four axes have no images") { CHECK(images_of(ls::shape(3, 3, 2, 4)).pixels.empty()); }

TEST_CASE("one value, equal values and values that are not finite are black") {
  CHECK(images_of(ls::shape(1)).pixels == Pixels{0});
  CHECK(ls::detail::weight_images({"w", ls::shape(2), {3, 3}, {}}).pixels == Pixels{0, 0});
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  CHECK(ls::detail::weight_images({"w", ls::shape(4), {inf, nan, -1, 1}, {}}).pixels ==
        Pixels{0, 0, 0, 255});
}
