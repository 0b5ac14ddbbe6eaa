#include <catch2/catch_test_macros.hpp>

#include "lockstep/data/operations/repeat.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/operations/shuffle_once.hpp"
#include "lockstep/data/operations/skip.hpp"
#include "lockstep/data/operations/take.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;
using support::order_of;
using support::range;
using Order = std::vector<std::uint64_t>;

TEST_CASE("take and skip select from the order of their source") {
  CHECK(order_of(range(6) | ls::skip(2) | ls::take(3)) == Order{2, 3, 4});
  CHECK(order_of(range(6) | ls::take(3) | ls::skip(2)) == Order{2});
  CHECK(order_of(range(3) | ls::take(0)).empty());
  CHECK(order_of(range(3) | ls::take(9)) == Order{0, 1, 2});
  CHECK(order_of(range(3) | ls::skip(3)).empty());
  CHECK(order_of(range(3) | ls::skip(9)).empty());
  CHECK(order_of(range(3) | ls::skip(1) | ls::repeat(2)) == Order{1, 2, 1, 2});
  CHECK(order_of(range(3) | ls::take(2) | ls::repeat(2)) == Order{0, 1, 0, 1});
  const auto shuffled = range(50) | ls::shuffle_once(4);
  const Order all = order_of(shuffled);
  CHECK(order_of(shuffled | ls::take(20), {4, 1}) == Order(all.begin(), all.begin() + 20));
  CHECK(order_of(shuffled | ls::skip(20), {4, 2}) == Order(all.begin() + 20, all.end()));
}

TEST_CASE("sizes account for take and skip") {
  CHECK((range(6) | ls::take(4)).size() == 4u);
  CHECK((range(6) | ls::take(9)).size() == 6u);
  CHECK((range(6) | ls::skip(4)).size() == 2u);
  CHECK((range(6) | ls::skip(9)).size() == 0u);
}

TEST_CASE("take and skip leave examples unchanged, rescaled or not") {
  const auto data = range(6) | ls::rescale(2, 1) | ls::skip(2) | ls::take(3);
  CHECK(support::gather_all<float>(data).x == std::vector{5.f, 7.f, 9.f});
  CHECK(support::gather_all<float>(data).y == std::vector<std::int32_t>{2, 3, 4});
}
