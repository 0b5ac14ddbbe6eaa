#include "lockstep/data/batch.hpp"

#include <catch2/catch_test_macros.hpp>

#include "lockstep/data/prefetch.hpp"
#include "lockstep/data/repeat.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;
using support::order_of;
using support::range;

TEST_CASE("batch keeps or drops the remainder of a pass") {
  CHECK((range(10) | ls::batch(4)).size() == 10u);
  CHECK(order_of(range(10) | ls::batch(4)).size() == 10);
  const auto whole = range(10) | ls::batch(4, ls::drop_remainder);
  CHECK(whole.size() == 8u);
  CHECK(order_of(whole) == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK((range(3) | ls::batch(4, ls::drop_remainder)).size() == 0u);
  CHECK((range(3) | ls::repeat | ls::batch(4, ls::drop_remainder)).size() == std::nullopt);
}

TEST_CASE("a pipeline says its batch and how far it works ahead") {
  const auto data = range(10) | ls::batch(4);
  CHECK(data.batch_size() == 4);
  CHECK(data.prefetch_depth() == 0);
  CHECK((data | ls::prefetch(3)).batch_size() == 4);
  CHECK((data | ls::prefetch(3)).prefetch_depth() == 3);
  static_assert(!ls::BatchedDataset<decltype(range(3))>);
}

TEST_CASE("a batch of no examples is refused") {
  CHECK_THROWS_AS(range(3) | ls::batch(0), ls::UsageError);
}
