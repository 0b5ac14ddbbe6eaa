#include "lockstep/data/operations/batch.hpp"

#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>

#include "lockstep/data/operations/prefetch.hpp"
#include "lockstep/data/operations/repeat.hpp"
#include "lockstep/data/operations/shard.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/operations/skip.hpp"
#include "lockstep/data/operations/take.hpp"
#include "lockstep/data/operations/window.hpp"
#include "lockstep/data/sources/digits.hpp"
#include "lockstep/data/sources/drawn_shapes.hpp"
#include "lockstep/data/sources/generator.hpp"
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

TEST_CASE("a pipeline reports its batch size and prefetch depth") {
  const auto data = range(10) | ls::batch(4);
  CHECK(data.batch_size() == 4);
  CHECK(data.prefetch_depth() == 0);
  CHECK((data | ls::prefetch(3)).batch_size() == 4);
  CHECK((data | ls::prefetch(3)).prefetch_depth() == 3);
  static_assert(!ls::BatchedDataset<decltype(range(3))>);
}

TEST_CASE("a negative count is refused with call and remedy, not converted to a huge one") {
  const auto message_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const ls::UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  const int minus = -1;
  const auto fn = [](std::uint64_t, auto& example) { example.x[0] = 0, example.y[0] = 0; };
  CHECK(message_of([&] {
          ls::batch(minus);
        }).starts_with("batch(-1): a batch needs at least one example"));
  CHECK(message_of([&] {
          ls::prefetch(minus);
        }).starts_with("prefetch(-1): the depth cannot be chosen automatically"));
  CHECK(message_of([&] { ls::prefetch(-2L); }).starts_with("prefetch(-2): "));
  CHECK(message_of([&] {
          ls::prefetch(1'000'000'000);
        }).starts_with("prefetch(1000000000): the depth exceeds 10"));
  CHECK(message_of([&] {
          ls::repeat(minus);
        }).starts_with("repeat(-1): give at least 1, or no argument"));
  CHECK(message_of([&] { ls::take(minus); }).starts_with("take(-1): give at least 0"));
  CHECK(message_of([&] {
          ls::skip(minus);
        }).starts_with("skip(-1): give the number of examples to skip"));
  CHECK(message_of([&] { ls::shuffle(minus); }).starts_with("shuffle(-1): give at least 1"));
  CHECK(
      message_of([&] { ls::shard(minus, 0); }).starts_with("shard(-1): shard indices start at 0"));
  CHECK(
      message_of([&] { ls::shard(5, minus); }).starts_with("shard(-1): shard indices start at 0"));
  CHECK(message_of([&] {
          ls::window(minus);
        }).starts_with("window(-1): a window needs at least one"));
  ls::WindowOptions options;
  options.stride = static_cast<std::uint64_t>(minus);
  CHECK(message_of([&] { range(9) | ls::window(2, options); }) ==
        "window: stride is -1; it must be at least 1");
  options = {.shift = static_cast<std::uint64_t>(minus)};
  CHECK(message_of([&] { range(9) | ls::window(2, options); }) ==
        "window: shift is -1; it must be at least 0");
  CHECK(message_of([&] {
          ls::generator(minus, ls::shape(1), ls::Shape{}, fn);
        }).starts_with("generator(-1): "));
  CHECK(message_of([&] { ls::datasets::digits(minus); }).starts_with("digits(-1): "));
  CHECK(message_of([&] { ls::datasets::shapes(9, minus); }).starts_with("shapes(-1): "));
  // Unsigned numbers are used unchanged.
  CHECK((range(3) | ls::take(std::numeric_limits<std::uint64_t>::max())).size() == 3u);
  CHECK((range(3) | ls::batch(std::numeric_limits<std::size_t>::max())).size() == 3u);
}

TEST_CASE("an empty batch is refused") { CHECK_THROWS_AS(range(3) | ls::batch(0), ls::UsageError); }
