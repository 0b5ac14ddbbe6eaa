#include "lockstep/data/sources/generator.hpp"

#include <catch2/catch_test_macros.hpp>

#include "lockstep/data/operations/cache.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;
using support::gather_all;

static_assert(ls::Dataset<ls::pipeline::Generator<std::int32_t, ls::detail::Numbered>> &&
              ls::Dataset<ls::pipeline::Generator<float, ls::detail::Numbered>>);

TEST_CASE("a generator's examples depend only on their numbers, in any order") {
  const auto squares = ls::generator<float>(50, ls::shape(2), ls::shape(1),
                                            [offset = 3](std::uint64_t number, auto& example) {
                                              const auto n = static_cast<float>(number);
                                              example.x[0] = n;
                                              example.x[1] = n + static_cast<float>(offset);
                                              example.y[0] = n * n;
                                            });
  CHECK(squares.size() == 50u);
  const auto all = gather_all<double>(squares | ls::shuffle(50), {1, 1});
  REQUIRE(all.y.size() == 50);
  for (std::size_t i = 0; i < 50; ++i) {
    CHECK(all.y[i] == all.x[2 * i] * all.x[2 * i]);
    CHECK(all.x[2 * i + 1] == all.x[2 * i] + 3);
  }
  CHECK(all.x != gather_all<double>(squares).x);
  CHECK(gather_all<float>(squares | ls::cache) == gather_all<float>(squares));
}

TEST_CASE("a generator may have class labels or no examples") {
  const auto label = [](std::uint64_t number, ls::Example<>& example) {
    example.x[0] = 0;
    example.y[0] = static_cast<std::int32_t>(number % 3);
  };
  const auto data = ls::generator(4, ls::shape(1), {}, label);
  CHECK(gather_all<float>(data).y == std::vector<std::int32_t>{0, 1, 2, 0});
  CHECK(gather_all<float>(ls::generator(0, ls::shape(1), {}, label)).y.empty());
}
