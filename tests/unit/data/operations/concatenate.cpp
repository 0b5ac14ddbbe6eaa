#include "lockstep/data/operations/concatenate.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>

#include "lockstep/data/loader.hpp"
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/cache.hpp"
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/operations/repeat.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/operations/skip.hpp"
#include "lockstep/data/operations/take.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using support::gather_all;
using support::range;

static_assert(ls::Dataset<ls::pipeline::Concatenate<ls::Tensors<float, float>,
                                                    ls::Tensors<std::uint8_t, double>>>);
static_assert(
    ls::pipeline::GathersScaled<
        ls::pipeline::Concatenate<ls::Tensors<float, float>, ls::Tensors<float, float>>, float>);

namespace {
/// Examples `first` .. `first` + n - 1.
auto from(int first, int n) { return range(first + n) | ls::skip(static_cast<unsigned>(first)); }
}  // namespace

TEST_CASE("concatenate yields the first data, then the second, as tf.data does") {
  const auto data = from(0, 2) | ls::concatenate(from(10, 3)) | ls::concatenate(from(20, 1));
  CHECK(data.size() == 6u);
  CHECK(gather_all<float>(data).x == std::vector{0.f, 1.f, 10.f, 11.f, 12.f, 20.f});
  CHECK(gather_all<double>(data).x == std::vector{0., 1., 10., 11., 12., 20.});
  CHECK(gather_all<float>(data).y == std::vector<std::int32_t>{0, 1, 10, 11, 12, 20});
  CHECK(gather_all<float>(range(0) | ls::concatenate(from(3, 1))).x == std::vector{3.f});
  CHECK(gather_all<float>(from(3, 1) | ls::concatenate(range(0))).x == std::vector{3.f});
}

TEST_CASE("operations after concatenate see one pipeline") {
  const auto both = from(0, 3) | ls::concatenate(from(10, 3));
  CHECK(gather_all<float>(both | ls::skip(2) | ls::take(2)).x == std::vector{2.f, 10.f});
  CHECK(gather_all<float>(both | ls::rescale(2, 1)).x ==
        std::vector{1.f, 3.f, 5.f, 21.f, 23.f, 25.f});
  CHECK(gather_all<float>(both | ls::repeat(2)).y ==
        std::vector<std::int32_t>{0, 1, 2, 10, 11, 12, 0, 1, 2, 10, 11, 12});
  const auto shuffled = gather_all<float>(both | ls::shuffle(6), {1, 3}).x;
  CHECK(std::set(shuffled.begin(), shuffled.end()) == std::set{0.f, 1.f, 2.f, 10.f, 11.f, 12.f});
  CHECK(shuffled != gather_all<float>(both).x);
}

TEST_CASE("each side keeps its maps and element type, and a cache holds both") {
  const auto bytes =
      ls::tensors(std::vector<std::uint8_t>{7, 8}, ls::shape(1), std::vector<std::int32_t>{1, 2});
  const auto data = bytes | ls::rescale(0.5) |
                    ls::concatenate(from(3, 2) | ls::map([](auto& e) { e.x[0] += 100; }));
  CHECK(gather_all<float>(data).x == std::vector{3.5f, 4.f, 103.f, 104.f});
  CHECK(gather_all<float>(data | ls::cache).x == std::vector{3.5f, 4.f, 103.f, 104.f});
  std::size_t gathered = 0;
  const auto cached =
      support::Counted{4, &gathered} | ls::concatenate(support::Counted{3, nullptr}) | ls::cache;
  CHECK(gather_all<float>(cached).x == std::vector{0.f, 1.f, 2.f, 3.f, 0.f, 1.f, 2.f});
  CHECK(gather_all<float>(cached | ls::shuffle(9)).x.size() == 7);
  CHECK(gathered == 4);
}

TEST_CASE("two shuffles below a concatenate draw different orders") {
  const auto half = range(40) | ls::shuffle(40);
  const auto x = gather_all<float>(half | ls::concatenate(half), {5, 2}).x;
  CHECK(std::vector(x.begin(), x.begin() + 40) == gather_all<float>(half, {5, 2}).x);
  CHECK(std::vector(x.begin(), x.begin() + 40) != std::vector(x.begin() + 40, x.end()));
  CHECK(std::set(x.begin() + 40, x.end()).size() == 40);
}

TEST_CASE("a loader restarts a concatenation for each pass, with the order of a new one") {
  const auto data =
      (range(9) | ls::shuffle(9)) | ls::concatenate(from(20, 5) | ls::shuffle(5)) | ls::batch(4);
  ls::Loader<float> loader(data);
  support::LabeledBatch<float, std::int32_t> batch;
  for (const std::uint64_t number : {0u, 1u, 2u}) {
    std::vector<float> seen;
    loader.begin({3, number});
    while (support::next(loader, batch))
      seen.insert(seen.end(), batch.x, batch.x + batch.slice.count);
    CHECK(seen == gather_all<float>(data, {3, number}).x);
  }
}

TEST_CASE("data that cannot be concatenated are refused") {
  const auto wide = ls::tensors(std::vector<float>(6), ls::shape(3), std::vector<std::int32_t>(2));
  const auto pairs =
      ls::tensors(std::vector<float>(2), ls::shape(1), std::vector<std::int32_t>(4), ls::shape(2));
  CHECK_THROWS_MATCHES(range(2) | ls::concatenate(wide), ls::UsageError,
                       MessageMatches(ContainsSubstring(
                           "examples have shape (1) in the first pipeline and (3) in the second")));
  CHECK_THROWS_MATCHES(range(2) | ls::concatenate(pairs), ls::UsageError,
                       MessageMatches(ContainsSubstring(
                           "targets have shape () in the first pipeline and (2) in the second")));
  CHECK_THROWS_MATCHES(range(2) | ls::repeat | ls::concatenate(range(2)), ls::UsageError,
                       MessageMatches(ContainsSubstring("the first pipeline is infinite")));
  CHECK((range(2) | ls::concatenate(range(2) | ls::repeat)).size() == std::nullopt);
}
