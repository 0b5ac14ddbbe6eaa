#include "lockstep/data/operations/shuffle.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>

#include "lockstep/core/rng.hpp"
#include "lockstep/data/operations/take.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;
using support::order_of;
using support::range;

namespace {

using Order = std::vector<std::uint64_t>;

Order sorted(Order order) {
  std::sort(order.begin(), order.end());
  return order;
}

Order counted(std::uint64_t n) {
  Order order(n);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

/// tf.data's shuffle buffer over a complete list, independent of the library: slots are filled from
/// the front of `waiting`; an empty slot receives the last element.
Order naive_shuffle(Order waiting, std::size_t buffer, ls::Philox draws) {
  Order slots, out;
  while (!waiting.empty() && slots.size() < buffer) {
    slots.push_back(waiting.front());
    waiting.erase(waiting.begin());
  }
  while (!slots.empty()) {
    const std::uint32_t i = draws.below(static_cast<std::uint32_t>(slots.size()));
    out.push_back(slots.at(i));
    if (!waiting.empty()) {
      slots.at(i) = waiting.front();
      waiting.erase(waiting.begin());
    } else {
      std::swap(slots.at(i), slots.back());
      slots.pop_back();
    }
  }
  return out;
}

}  // namespace

TEST_CASE("an order is a function of seed and pass") {
  const auto data = range(200) | ls::shuffle(50);
  const Order order = order_of(data, {7, 3});
  CHECK(order == order_of(range(200) | ls::shuffle(50), {7, 3}));
  CHECK(order != order_of(data, {7, 4}));
  CHECK(order != order_of(data, {8, 3}));
  CHECK(order_of(data, {7, 4}) != order_of(data, {8, 3}));
}

TEST_CASE("each shuffled pass has each example once") {
  for (const std::uint64_t buffer : {1u, 2u, 9u, 10u, 11u, 1000u})
    for (std::uint64_t pass = 0; pass < 20; ++pass)
      REQUIRE(sorted(order_of(range(10) | ls::shuffle(buffer), {1, pass})) == counted(10));
  CHECK(order_of(range(0) | ls::shuffle(4)).empty());
}

TEST_CASE("shuffle follows tf.data's buffer") {
  for (const int size : {1, 5, 64, 333})
    for (const std::uint64_t buffer : {1u, 3u, 64u, 1000u}) {
      const ls::Pass pass{5, 2};
      const ls::Philox draws(ls::mix(ls::mix(5, ls::hash_name("shuffle")), 2));
      REQUIRE(order_of(range(size) | ls::shuffle(buffer), pass) ==
              naive_shuffle(counted(static_cast<std::uint64_t>(size)), buffer, draws));
    }
}

TEST_CASE(
    "an example cannot come before it entered the buffer, and a buffer of one keeps the order") {
  const Order order = order_of(range(500) | ls::shuffle(20), {3, 0});
  for (std::size_t place = 0; place < order.size(); ++place) REQUIRE(order[place] < place + 20);
  CHECK(order_of(range(500) | ls::shuffle(1)) == counted(500));
}

TEST_CASE("a full shuffle yields each order equally often") {
  std::map<Order, int> seen;
  constexpr int passes = 24 * 500;
  const auto data = range(4) | ls::shuffle(1'000'000);
  for (std::uint64_t pass = 0; pass < passes; ++pass) ++seen[order_of(data, {11, pass})];
  REQUIRE(seen.size() == 24);
  double chi_squared = 0;  // 23 degrees of freedom: exceeds 49.7 once in a thousand runs
  for (const auto& [order, times] : seen) chi_squared += (times - 500.0) * (times - 500.0) / 500.0;
  CHECK(chi_squared < 49.7);
}

TEST_CASE("a restarted stream equals a new one") {
  const auto data = range(30) | ls::take(25) | ls::shuffle(7);
  auto stream = data.indices({1, 0});
  for (int i = 0; i < 12; ++i) (void)stream.next();
  ls::pipeline::restart(data, stream, {1, 1});
  Order order;
  while (const auto index = stream.next()) order.push_back(*index);
  CHECK(order == order_of(data, {1, 1}));
}

TEST_CASE("an empty buffer is refused") {
  CHECK_THROWS_AS(range(3) | ls::shuffle(0), ls::UsageError);
}
