#include "lockstep/data/operations/shard.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "lockstep/data/loader.hpp"
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/repeat.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;
using support::order_of;
using support::range;
using Order = std::vector<std::uint64_t>;

static_assert(ls::Dataset<ls::pipeline::Shard<ls::Tensors<float, float>>>);

TEST_CASE("shard keeps every n-th example, as tf.data does") {
  CHECK(order_of(range(10) | ls::shard(3, 0)) == Order{0, 3, 6, 9});
  CHECK(order_of(range(10) | ls::shard(3, 1)) == Order{1, 4, 7});
  CHECK(order_of(range(10) | ls::shard(3, 2)) == Order{2, 5, 8});
  CHECK(order_of(range(2) | ls::shard(5, 4)).empty());
  CHECK(order_of(range(3) | ls::shard(1, 0)) == Order{0, 1, 2});
  CHECK(order_of(range(4) | ls::repeat(2) | ls::shard(3, 2)) == Order{2, 1});
  CHECK(order_of(range(4) | ls::shard(2, 1) | ls::repeat(2)) == Order{1, 3, 1, 3});
  const auto rescaled = range(10) | ls::rescale(2) | ls::shard(5, 1);
  CHECK(support::gather_all<float>(rescaled).x == std::vector{2.f, 12.f});
}

TEST_CASE("shards are disjoint, cover the data, and know their sizes") {
  for (const int examples : {0, 1, 6, 7, 23})
    for (const std::uint64_t count : {1u, 2u, 3u, 7u, 30u}) {
      Order all;
      for (std::uint64_t i = 0; i < count; ++i) {
        const auto part = range(examples) | ls::shard(count, i) | ls::shuffle(64);
        const Order order = order_of(part, {1, 2});
        CHECK(part.size() == order.size());
        all.insert(all.end(), order.begin(), order.end());
      }
      std::sort(all.begin(), all.end());
      CHECK(all == order_of(range(examples)));
    }
  CHECK((range(3) | ls::repeat | ls::shard(2, 0)).size() == std::nullopt);
}

TEST_CASE("each pass of a loader restarts the shard") {
  const auto data = range(11) | ls::shard(3, 1) | ls::shuffle(11) | ls::batch(2);
  ls::Loader<float> loader(data);
  support::LabeledBatch<float, std::int32_t> batch;
  for (const std::uint64_t number : {0u, 1u}) {
    std::vector<float> seen;
    loader.begin({3, number});
    while (support::next(loader, batch))
      seen.insert(seen.end(), batch.x, batch.x + batch.slice.count);
    CHECK(seen == support::gather_all<float>(data, {3, number}).x);
  }
}

TEST_CASE("a shard index out of range is refused") {
  CHECK_THROWS_AS(range(3) | ls::shard(0, 0), ls::UsageError);
  CHECK_THROWS_AS(range(3) | ls::shard(2, 2), ls::UsageError);
}
