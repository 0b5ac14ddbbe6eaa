#include "lockstep/data/images/cutout.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>

#include "lockstep/data/operations/repeat.hpp"
#include "unit/data/image_support.hpp"

namespace ls = lockstep;
using support::gather_all;
using support::images;
using support::pixel;

namespace {

/// How often the square was centered at each pixel; fails for any other kind of hole. Squares with
/// the same visible part are indistinguishable, so `size` must be small.
template <class T>
std::vector<int> middles(ls::Shape s, int size, T fill, std::size_t count) {
  const auto one = images(1, s);
  const std::vector<T> from = gather_all<T>(one).x;
  const auto x =
      gather_all<T>(one | ls::repeat(count) | ls::cutout(size, {.fill = fill}), {5, 1}).x;
  std::vector<int> seen(static_cast<std::size_t>(s[0] * s[1]));
  for (std::size_t n = 0; n < count; ++n) {
    int found = 0;
    for (int middle = 0; middle < s[0] * s[1]; ++middle) {
      const int top = middle / s[1] - size / 2, left = middle % s[1] - size / 2;
      bool fits = true;
      for (int r = 0; r < s[0]; ++r)
        for (int c = 0; c < s[1]; ++c)
          for (int k = 0; k < s[2]; ++k) {
            const bool hole = r >= top && r < top + size && c >= left && c < left + size;
            fits = fits && pixel(x, s, n, r, c, k) == (hole ? fill : pixel(from, s, 0, r, c, k));
          }
      if (fits) ++seen[static_cast<std::size_t>(middle)], ++found;
    }
    REQUIRE(found == 1);
  }
  return seen;
}

}  // namespace

TEST_CASE("cutout masks a square around any pixel, each equally often") {
  CHECK(support::chi_squared(middles<float>(ls::shape(7, 8, 3), 4, 0, 3000)) < 112);
  CHECK(support::chi_squared(middles<double>(ls::shape(5, 5, 1), 3, -2.5, 2000)) < 50);
  CHECK(support::chi_squared(middles<double>(ls::shape(3, 4, 2), 1, 0, 1000)) < 32);
}

TEST_CASE("a square larger than the image leaves pixels outside it unchanged") {
  const auto one = images(1, ls::shape(4, 4, 1));
  const auto x = gather_all<float>(one | ls::cutout(2'147'483'647)).x;
  CHECK(std::count(x.begin(), x.end(), 0.0f) == 16);
}

TEST_CASE("cutout refuses an empty square and examples that are not images") {
  CHECK_THROWS_MATCHES(
      images(1, ls::shape(4, 4, 1)) | ls::cutout(0), ls::UsageError,
      Catch::Matchers::Message("cutout(0): the square is empty; its side must be at least 1"));
  CHECK_THROWS_AS(support::range(2) | ls::cutout(2), ls::UsageError);
}
