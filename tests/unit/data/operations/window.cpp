#include "lockstep/data/operations/window.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>

#include "lockstep/data/loader.hpp"
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/cache.hpp"
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/operations/repeat.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/operations/skip.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;
using support::gather_all;
using support::range;
using Floats = std::vector<float>;

static_assert(ls::Dataset<ls::pipeline::Window<ls::Tensors<std::uint8_t, std::int32_t>>>);
static_assert(ls::Dataset<ls::pipeline::Unbatch<ls::Tensors<float, double>>>);

TEST_CASE("windows are tf.data's, without partial ones") {
  // tf.data.Dataset.range(7).window(3, drop_remainder=True), then with shift 1, shift 3 and stride
  // 2
  CHECK(gather_all<float>(range(7) | ls::window(3)).x == Floats{0, 1, 2, 3, 4, 5});
  CHECK(gather_all<float>(range(7) | ls::window(3, {.shift = 2})).x ==
        Floats{0, 1, 2, 2, 3, 4, 4, 5, 6});
  CHECK(gather_all<float>(range(7) | ls::window(3, {.shift = 1, .stride = 2})).x ==
        Floats{0, 2, 4, 1, 3, 5, 2, 4, 6});
  CHECK((range(7) | ls::window(7)).size() == 1u);
  CHECK((range(7) | ls::window(8)).size() == 0u);
  CHECK((range(0) | ls::window(1)).size() == 0u);
  CHECK((range(9) | ls::window(2, {.shift = 5})).size() == 2u);
}

TEST_CASE("a window stacks features and targets along a new first axis") {
  const auto data = ls::tensors(Floats{1, 2, 3, 4, 5, 6}, ls::shape(2), std::vector{7, 8, 9}) |
                    ls::rescale(10) | ls::skip(1) | ls::window(2);
  CHECK(data.shape() == ls::shape(2, 2));
  CHECK(data.shape(1) == ls::shape(2));
  CHECK(gather_all<double>(data).x == std::vector{30., 40., 50., 60.});
  CHECK(gather_all<float>(data).y == std::vector<std::int32_t>{8, 9});
}

TEST_CASE("windows are shuffled as units, and unbatch restores their rows") {
  const auto data = range(30) | ls::window(3) | ls::shuffle(10);
  const auto x = gather_all<float>(data, {1, 1}).x;
  REQUIRE(x.size() == 30);
  for (std::size_t i = 0; i < x.size(); i += 3)
    CHECK((x[i + 1] == x[i] + 1 && x[i + 2] == x[i] + 2));
  CHECK(x != gather_all<float>(range(30)).x);
  CHECK(gather_all<float>(data | ls::unbatch, {1, 1}).x == x);
  CHECK(gather_all<float>(range(7) | ls::window(3) | ls::unbatch | ls::rescale(2)).x ==
        Floats{0, 2, 4, 6, 8, 10});
}

TEST_CASE("unbatch splits examples into rows, in any order and part") {
  const auto whole = ls::tensors(Floats{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, ls::shape(3, 2),
                                 std::vector{1, 2, 3, 4, 5, 6}, ls::shape(3));
  const auto rows = whole | ls::rescale(0.5) | ls::unbatch;
  CHECK(rows.shape() == ls::shape(2));
  CHECK(rows.shape(1) == ls::Shape{});
  CHECK(rows.size() == 6u);
  CHECK(gather_all<float>(rows).x == Floats{.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6});
  const auto mixed = gather_all<double>(rows | ls::shuffle(6), {1, 3});
  for (std::size_t i = 0; i < 6; ++i) CHECK(mixed.x[2 * i] == mixed.y[i] - 0.5);
  CHECK(std::set(mixed.y.begin(), mixed.y.end()).size() == 6);
  CHECK((whole | ls::repeat | ls::unbatch).size() == std::nullopt);
}

TEST_CASE("an example in two windows draws for each, independent of the gathered part") {
  const auto noisy =
      range(6) |
      ls::map([](auto& e, ls::Philox& draws) { e.x[0] = static_cast<float>(draws.uniform()); }) |
      ls::window(2, {.shift = 1});
  const auto all = gather_all<float>(noisy, {1, 5}).x;
  CHECK(std::set(all.begin(), all.end()).size() == 10);
  const std::vector<ls::Item> part{{3, 3}, {1, 1}};
  Floats x(4);
  std::vector<std::int32_t> y(4);
  support::gather(noisy, {1, 5}, part, x, y);
  CHECK(x == Floats{all[6], all[7], all[2], all[3]});
}

TEST_CASE("a loader restarts windows and rows for each pass, also after an abandoned one") {
  const auto data = range(12) | ls::window(3) | ls::shuffle(4) | ls::unbatch | ls::batch(4);
  ls::Loader<float> loader(data);
  support::LabeledBatch<float, std::int32_t> batch;
  for (const std::uint64_t number : {0u, 1u}) {
    loader.begin({9, 9});
    support::next(loader, batch);
    Floats seen;
    loader.begin({3, number});
    while (support::next(loader, batch))
      seen.insert(seen.end(), batch.x, batch.x + batch.slice.count);
    CHECK(seen == gather_all<float>(data, {3, number}).x);
  }
}

TEST_CASE("invalid windows and rows are refused") {
  CHECK_THROWS_AS(range(3) | ls::window(0), ls::UsageError);
  CHECK_THROWS_AS(range(3) | ls::window(2, {.stride = 0}), ls::UsageError);
  const auto full =
      ls::tensors(Floats(1), ls::shape(1, 1, 1, 1), std::vector{1});  // already four axes
  CHECK_THROWS_AS(full | ls::window(1), ls::UsageError);
  CHECK_THROWS_AS(range(3) | ls::unbatch, ls::UsageError);  // a label of shape ()
  const auto odd = ls::tensors(Floats(6), ls::shape(3), std::vector<int>(4), ls::shape(2));
  CHECK_THROWS_AS(odd | ls::unbatch, ls::UsageError);
}
