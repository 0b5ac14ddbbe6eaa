#include "lockstep/data/operations/shuffle_once.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <set>

#include "lockstep/data/operations/cache.hpp"
#include "lockstep/data/operations/repeat.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/operations/shard.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/operations/skip.hpp"
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

}  // namespace

TEST_CASE("shuffle_once keeps one order in all passes, for all seeds of a model") {
  const auto data = range(100) | ls::shuffle_once(7);
  const Order order = order_of(data, {1, 0});
  CHECK(order == order_of(data, {1, 5}));
  CHECK(order == order_of(data, {9, 3}));
  CHECK(order != order_of(range(100) | ls::shuffle_once(8)));
  CHECK(order != order_of(range(100)));
  CHECK(sorted(order) == order_of(range(100)));
  CHECK(data.size() == 100u);
  CHECK(order_of(range(0) | ls::shuffle_once()).empty());
}

TEST_CASE("a split after shuffle_once is disjoint in all passes, and complete") {
  const auto all = range(50) | ls::rescale(0.5) | ls::shuffle_once();
  const auto train = all | ls::skip(20) | ls::cache | ls::shuffle(50) | ls::repeat(2);
  const auto validation = all | ls::take(20);
  std::set<std::uint64_t> trained;
  for (const std::uint64_t pass : {0u, 1u, 2u})
    for (const std::uint64_t index : order_of(train, {4, pass})) trained.insert(index);
  const Order held_out = order_of(validation, {4, 2});
  CHECK(held_out.size() == 20);
  CHECK(trained.size() == 30);
  for (const std::uint64_t index : held_out) CHECK(!trained.contains(index));
  CHECK(sorted(order_of(range(9) | ls::shuffle_once() | ls::shard(3, 1))).size() == 3);
}

TEST_CASE("shuffle_once refuses an infinite pipeline") {
  CHECK_THROWS_AS(ls::pipeline::indices_shuffled(range(3) | ls::repeat, 0), ls::UsageError);
}
