#include "lockstep/data/operations/repeat.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <set>

#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/operations/skip.hpp"
#include "lockstep/data/operations/take.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;
using support::order_of;
using support::range;
using Order = std::vector<std::uint64_t>;

TEST_CASE("repeat runs through its source a given number of times or forever") {
  CHECK(order_of(range(3) | ls::repeat(2)) == Order{0, 1, 2, 0, 1, 2});
  CHECK((range(3) | ls::repeat(2)).size() == 6u);
  CHECK(order_of(range(2) | ls::repeat, {}, 5) == Order{0, 1, 0, 1, 0});
  CHECK(order_of(range(2) | ls::repeat(), {}, 5) == Order{0, 1, 0, 1, 0});
  CHECK((range(2) | ls::repeat).size() == std::nullopt);
  CHECK((range(2) | ls::repeat | ls::repeat(3)).size() == std::nullopt);
  CHECK((range(2) | ls::repeat | ls::take(5)).size() == 5u);
  CHECK((range(2) | ls::repeat | ls::skip(5)).size() == std::nullopt);
}

TEST_CASE("a repeat of an empty source ends") {
  CHECK(order_of(range(0) | ls::repeat).empty());
  CHECK((range(0) | ls::repeat).size() == 0u);
}

TEST_CASE("shuffle before repeat draws a new order each round, each with all examples") {
  const auto data = range(40) | ls::shuffle(40) | ls::repeat(5);
  const Order order = order_of(data, {2, 9});
  REQUIRE(order.size() == 200);
  std::set<Order> rounds;
  for (auto round = order.begin(); round != order.end(); round += 40) {
    rounds.emplace(round, round + 40);
    CHECK(std::set<std::uint64_t>(round, round + 40).size() == 40);
  }
  CHECK(rounds.size() == 5);
  CHECK(order == order_of(data, {2, 9}));
  CHECK(order != order_of(data, {2, 10}));
  // The first round is the source's own pass.
  CHECK(Order(order.begin(), order.begin() + 40) == order_of(range(40) | ls::shuffle(40), {2, 9}));
}

TEST_CASE("repeat before shuffle mixes the rounds") {
  const Order order = order_of(range(10) | ls::repeat(2) | ls::shuffle(20), {1, 0});
  CHECK(std::set<std::uint64_t>(order.begin(), order.begin() + 10).size() < 10);
  for (std::uint64_t i = 0; i < 10; ++i) CHECK(std::count(order.begin(), order.end(), i) == 2);
}

TEST_CASE("an invalid repeat is refused") {
  CHECK_THROWS_AS(range(3) | ls::repeat(0), ls::UsageError);
  CHECK_THROWS_AS(range(3) | ls::repeat(1ull << 63), ls::UsageError);
}

TEST_CASE("a program chooses between repeat and repeat of a number") {
  for (const bool forever : {false, true}) {
    const auto data = support::range(3) | (forever ? ls::repeat : ls::repeat(2));
    CHECK(data.size().has_value() != forever);
  }
}
