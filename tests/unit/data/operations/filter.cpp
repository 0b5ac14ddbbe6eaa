#include "lockstep/data/operations/filter.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>

#include "lockstep/data/operations/cache.hpp"
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/operations/repeat.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/operations/skip.hpp"
#include "lockstep/data/operations/take.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;
using support::gather_all;
using support::range;

static_assert(ls::Dataset<ls::pipeline::Listed<ls::Tensors<float, float>>>);

namespace {
const auto even = ls::filter([](const auto& example) { return example.y[0] % 2 == 0; });
}  // namespace

TEST_CASE("filter keeps the examples for which its function is true, in their order") {
  CHECK(gather_all<float>(range(7) | even).x == std::vector{0.f, 2.f, 4.f, 6.f});
  CHECK(gather_all<double>(range(7) | even).y == std::vector<std::int32_t>{0, 2, 4, 6});
  CHECK((range(7) | even).size() == 4u);
  CHECK((range(0) | even).size() == 0u);
  CHECK((range(7) | ls::filter([](const auto&) { return false; })).size() == 0u);
  CHECK(gather_all<float>(range(9) | ls::skip(3) | even | ls::take(2)).x == std::vector{4.f, 6.f});
}

TEST_CASE("filter sees the features at its position, also rescaled or mapped") {
  const auto large = ls::filter([](const auto& example) { return example.x[0] > 5; });
  CHECK(gather_all<float>(range(5) | ls::rescale(2) | large).x == std::vector{6.f, 8.f});
  CHECK(gather_all<float>(range(5) | large | ls::rescale(2)).x.empty());
  const auto plus = ls::map([](auto& example) { example.x[0] += 3; });
  CHECK(gather_all<float>(range(5) | plus | large).x == std::vector{6.f, 7.f});
}

TEST_CASE("filter calls its function once per example for any number of passes") {
  std::size_t gathered = 0;
  const auto data = support::Counted{10, &gathered} | even;
  CHECK(gathered == 10);
  const auto shuffled = gather_all<float>(data | ls::shuffle(9) | ls::repeat(3), {1, 2}).x;
  CHECK(shuffled.size() == 15);
  CHECK(std::set(shuffled.begin(), shuffled.end()) == std::set{0.f, 2.f, 4.f, 6.f, 8.f});
  CHECK(gathered == 25);
  CHECK(gather_all<float>(data | ls::cache).x == std::vector{0.f, 2.f, 4.f, 6.f, 8.f});
}
