#include "lockstep/data/operations/zip.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>

#include "lockstep/data/operations/repeat.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/operations/skip.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;
using support::gather_all;
using support::range;

static_assert(ls::Dataset<ls::pipeline::Zip<ls::Tensors<std::uint8_t, std::int32_t>,
                                            ls::Tensors<float, double>>>);

TEST_CASE("zip has the first's features and the second's targets, up to the shorter one") {
  const auto reals = ls::tensors(std::vector{1., 2., 3.}, ls::shape(1),
                                 std::vector{0.1, 0.2, 0.3, 0.4, 0.5, 0.6}, ls::shape(2));
  const auto data = ls::zip(range(9) | ls::skip(4) | ls::rescale(10), reals);
  CHECK(data.size() == 3u);
  CHECK(data.shape() == ls::shape(1));
  CHECK(data.shape(1) == ls::shape(2));
  CHECK(gather_all<float>(data).x == std::vector{40.f, 50.f, 60.f});
  CHECK(gather_all<double>(data).y == std::vector{0.1, 0.2, 0.3, 0.4, 0.5, 0.6});
  CHECK(ls::zip(reals, range(2)).size() == 2u);
  CHECK(gather_all<float>(ls::zip(reals, range(2))).y == std::vector<std::int32_t>{0, 1});
  CHECK(ls::zip(range(2) | ls::repeat, range(7)).size() == 7u);
  CHECK(ls::zip(range(2), range(7) | ls::repeat).size() == 2u);
  CHECK(ls::zip(range(2) | ls::repeat, range(7) | ls::repeat).size() == std::nullopt);
}

TEST_CASE("a shuffle after zip keeps the pairs, also beyond one chunk of scratch") {
  const auto squares = [] {
    std::vector<float> y(200);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(i * i);
    return ls::tensors(std::vector<float>(200), ls::shape(1), y);
  }();
  const auto data = ls::zip(range(200), squares) | ls::shuffle(200);
  const auto all = gather_all<float>(data, {2, 7});
  REQUIRE(all.x.size() == 200);
  CHECK(std::set(all.x.begin(), all.x.end()).size() == 200);
  for (std::size_t i = 0; i < 200; ++i) CHECK(all.y[i] == all.x[i] * all.x[i]);
}

TEST_CASE("two shuffles below a zip are independent, and reproducible for a pass") {
  const auto half = range(60) | ls::shuffle(60);
  const auto data = ls::zip(half, half);
  const auto all = gather_all<float>(data, {1, 4});
  CHECK(std::vector<std::int32_t>(all.x.begin(), all.x.end()) != all.y);
  CHECK(all == gather_all<float>(data, {1, 4}));
  CHECK(std::set(all.y.begin(), all.y.end()).size() == 60);
}

namespace {
struct Far : support::Counted {  // as if its examples began in the middle of 2^32
  struct Stream {
    std::uint64_t index = 0xffffffff;
    std::optional<std::uint64_t> next() { return index++; }
  };
  Stream indices(ls::Pass) const { return {}; }
};
}  // namespace

TEST_CASE("indices that do not fit in 32 bits are refused, not truncated") {
  auto stream = ls::zip(Far{}, range(3)).indices({});
  CHECK(stream.next() == 0xffffffff00000000u);
  CHECK_THROWS_AS(stream.next(), ls::UsageError);
}
