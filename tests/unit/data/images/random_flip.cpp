#include "lockstep/data/images/random_flip.hpp"

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

enum class Mirror { none, left_right, up_down };

template <class T>
bool is_mirrored(const std::vector<T>& x, std::size_t n, const std::vector<T>& from, ls::Shape s,
                 Mirror how) {
  for (int r = 0; r < s[0]; ++r)
    for (int c = 0; c < s[1]; ++c)
      for (int k = 0; k < s[2]; ++k)
        if (pixel(x, s, n, r, c, k) != pixel(from, s, 0, how == Mirror::up_down ? s[0] - 1 - r : r,
                                             how == Mirror::left_right ? s[1] - 1 - c : c, k))
          return false;
  return true;
}

/// Whether each of 400 examples was flipped; fails for any other change.
template <class T, class Flip>
std::vector<bool> flips(ls::Shape s, const Flip& flip, Mirror how, ls::Pass pass = {}) {
  const auto one = images(1, s);
  const std::vector<T> from = gather_all<T>(one).x;
  const std::vector<T> x = gather_all<T>(one | ls::repeat(400) | flip, pass).x;
  std::vector<bool> result;
  for (std::size_t n = 0; n < 400; ++n) {
    const bool flipped = is_mirrored(x, n, from, s, how);
    REQUIRE(flipped != is_mirrored(x, n, from, s, Mirror::none));
    result.push_back(flipped);
  }
  return result;
}

bool is_a_fair_coin(const std::vector<bool>& thrown) {
  const auto heads = std::count(thrown.begin(), thrown.end(), true);
  return heads > 160 && heads < 240;  // four standard deviations
}

}  // namespace

TEST_CASE("random_flip_left_right mirrors half of the images and keeps pixels intact") {
  const Mirror how = Mirror::left_right;
  CHECK(is_a_fair_coin(flips<float>(ls::shape(3, 5, 3), ls::random_flip_left_right, how)));
  CHECK(is_a_fair_coin(flips<double>(ls::shape(4, 4, 1), ls::random_flip_left_right, how)));
  CHECK(is_a_fair_coin(flips<double>(ls::shape(2, 6, 4), ls::random_flip_left_right, how)));
}

TEST_CASE("random_flip_up_down mirrors half of the images and keeps rows intact") {
  CHECK(is_a_fair_coin(flips<float>(ls::shape(5, 3, 3), ls::random_flip_up_down, Mirror::up_down)));
  CHECK(
      is_a_fair_coin(flips<double>(ls::shape(4, 4, 1), ls::random_flip_up_down, Mirror::up_down)));
}

TEST_CASE("flips differ by seed, pass and operation, but not by the device's type") {
  const ls::Shape s = ls::shape(3, 4, 2);
  const auto first = flips<float>(s, ls::random_flip_left_right, Mirror::left_right);
  CHECK(first == flips<double>(s, ls::random_flip_left_right, Mirror::left_right));
  CHECK(first != flips<float>(s, ls::random_flip_left_right, Mirror::left_right, {1, 1}));
  CHECK(first != flips<float>(s, ls::random_flip_left_right, Mirror::left_right, {2, 0}));
  CHECK(first != flips<float>(s, ls::random_flip_up_down, Mirror::up_down));

  // The same operation twice: the second draws independently, so some images end up mirrored.
  const auto one = images(1, s);
  const auto x = gather_all<float>(one | ls::repeat(400) | ls::random_flip_left_right |
                                   ls::random_flip_left_right)
                     .x;
  std::vector<bool> both;
  for (std::size_t n = 0; n < 400; ++n)
    both.push_back(is_mirrored(x, n, gather_all<float>(one).x, s, Mirror::left_right));
  CHECK(is_a_fair_coin(both));
  CHECK(both != first);
}

TEST_CASE("the flips refuse examples that are not images") {
  CHECK_THROWS_MATCHES(
      support::range(2) | ls::random_flip_left_right, ls::UsageError,
      Catch::Matchers::Message(
          "random_flip_left_right: examples have shape (1), not (height, width, channels); give "
          "the source that shape, with one channel for gray images"));
  CHECK_THROWS_AS(support::range(2) | ls::random_flip_up_down, ls::UsageError);
}
