#include "lockstep/core/numbers/median.hpp"

#include <catch2/catch_test_macros.hpp>

using lockstep::detail::median;

TEST_CASE("the median is the middle value, or the mean of the two middle ones, in any order") {
  CHECK(median({3}) == 3);
  CHECK(median({9, 1}) == 5);
  CHECK(median({9, 1, 2}) == 2);
  CHECK(median({9, 1, 2, 5}) == 3.5);
  CHECK(median({7, 7, -1, 100, 0}) == 7);
}
