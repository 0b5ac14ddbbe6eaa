#include "lockstep/data/operations/validation_split.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <set>

#include "lockstep/data/operations/cache.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;
using support::gather_all;
using support::range;
using Floats = std::vector<float>;

namespace {
std::set<float> set_of(const Floats& x) { return {x.begin(), x.end()}; }
}  // namespace

TEST_CASE("the last part is split off before shuffle and repeat, and read once, in order") {
  const auto data = range(10) | ls::rescale(2) | ls::shuffle(10) | ls::repeat(3) |
                    ls::rescale(0.5, 1) | ls::batch(4, ls::drop_remainder) | ls::prefetch(2);
  const auto [training, validation] = ls::validation_split(0.3).parts(data);
  CHECK(gather_all<float>(validation).x == Floats{8, 9, 10});
  CHECK(validation.size() == 3u);
  CHECK(validation.batch_size() == 4);
  CHECK(validation.prefetch_depth() == 2);
  CHECK(training.size() == 20u);  // 21 minus the remainder
  for (const std::uint64_t pass : {0u, 1u, 2u})
    for (const float x : gather_all<float>(training, {1, pass}).x) CHECK((x >= 1 && x <= 7));
  // The order equals that of a shuffle of only the first seven.
  const auto alone = range(10) | ls::take(7) | ls::rescale(1, 1) | ls::shuffle(10) | ls::repeat(3) |
                     ls::batch(4, ls::drop_remainder);
  CHECK(gather_all<float>(training, {4, 2}).x == gather_all<float>(alone, {4, 2}).x);
}

TEST_CASE("the split index is Keras' floor of n times 1 - fraction, in double") {
  // int(math.floor(n * (1.0 - f))) in Python; 1.0 - 0.9 is less than 0.1, so 10 would yield 0.
  for (const auto& [n, fraction, first] : {std::tuple(10, 0.2, 8u),
                                           {10, 0.3, 7u},
                                           {5, 0.5, 2u},
                                           {7, 0.01, 6u},
                                           {100, 0.07, 93u},
                                           {30, 0.9, 2u},
                                           {3, 0.34, 1u}}) {
    INFO(n << " " << fraction);
    const auto data = range(n) | ls::batch(3);
    CHECK(ls::validation_split(fraction).parts(data).first.size() == first);
  }
}

TEST_CASE("features as targets may come before or after a shuffle") {
  const auto check = [](const auto& data) {
    const auto [training, validation] = ls::validation_split(0.3).parts(data);
    CHECK(gather_all<float>(validation).x == Floats{14, 16, 18});
    CHECK(gather_all<float>(validation).y == Floats{14, 16, 18});
    const auto all = gather_all<float>(training);
    CHECK(all.y == all.x);
    CHECK(set_of(all.x) == std::set<float>{0, 2, 4, 6, 8, 10, 12});
  };
  const auto data = range(10) | ls::rescale(2);
  check(data | ls::features_as_targets | ls::shuffle(10) | ls::batch(4));
  check(data | ls::shuffle(10) | ls::features_as_targets | ls::batch(4));
}

TEST_CASE("a cache and maps below and above the shuffle serve both parts") {
  std::size_t gathered = 0;
  const auto plus = ls::map([](auto& example) { example.x[0] += 100; });
  const auto half = ls::map<ls::shape(1)>(
      [](std::span<const float> in, std::span<float> out) { out[0] = in[0] / 2; });
  const auto data = support::Counted{8, &gathered} | plus | ls::cache | ls::shuffle(8) | half |
                    plus | ls::batch(4);
  const auto [training, validation] = ls::validation_split(0.25).parts(data);
  CHECK(gather_all<float>(validation).x == Floats{153, 153.5});
  CHECK(set_of(gather_all<float>(training).x) ==
        std::set<float>{150, 150.5, 151, 151.5, 152, 152.5});
  CHECK(gather_all<float>(training).y != std::vector<std::int32_t>{0, 1, 2, 3, 4, 5});
  CHECK(gathered == 8);
}

TEST_CASE("a split that leaves nothing on one side is refused") {
  for (const double fraction : {0.0, 1.0, -0.5, 2.0, std::nan("")})
    CHECK_THROWS_AS(ls::validation_split(fraction), ls::UsageError);
  const auto few = range(3) | ls::batch(1);
  CHECK_THROWS_AS(ls::validation_split(0.9).parts(few), ls::UsageError);
  CHECK_THROWS_AS(ls::validation_split(1e-17).parts(few), ls::UsageError);
  CHECK_THROWS_AS(ls::validation_split(0.5).parts(range(0) | ls::batch(1)), ls::UsageError);
}
