#include "lockstep/data/operations/rescale.hpp"

#include <catch2/catch_test_macros.hpp>

#include "lockstep/data/operations/cache.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/operations/take.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;

namespace {
auto all_bytes() {
  std::vector<std::uint8_t> bytes(256);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  return ls::tensors(bytes, ls::shape(64), std::vector<std::int32_t>{3, 1, 2, 0});
}
}  // namespace

TEST_CASE("rescale computes in the device's type") {
  const auto data = all_bytes() | ls::rescale(1.0 / 255);
  const auto narrow = support::gather_all<float>(data);
  const auto wide = support::gather_all<double>(data);
  for (std::size_t i = 0; i < 256; ++i) {
    REQUIRE(narrow.x[i] == static_cast<float>(i) * static_cast<float>(1.0 / 255));
    REQUIRE(wide.x[i] == static_cast<double>(i) * (1.0 / 255));
  }
  CHECK(narrow.y == std::vector<std::int32_t>{3, 1, 2, 0});
  CHECK(wide.y == narrow.y);
}

TEST_CASE("the offset is added after the scale") {
  // Powers of two are exact in any order of operations.
  const auto wide = support::gather_all<double>(all_bytes() | ls::rescale(0.5, -64));
  CHECK(wide.x[0] == -64.0);
  CHECK(wide.x[255] == 63.5);
  const auto twice = all_bytes() | ls::rescale(0.5, -64) | ls::rescale(2, 1);
  CHECK(support::gather_all<float>(twice).x[255] == 128.0f);
}

TEST_CASE("bytes stay bytes below rescale, cache and take") {
  using Bytes = ls::Tensors<std::uint8_t, std::int32_t>;
  const auto kept = all_bytes() | ls::rescale(1.0 / 255) | ls::cache;
  static_assert(std::is_same_v<decltype(kept), const ls::pipeline::Rescale<Bytes>>);
  const auto few = all_bytes() | ls::rescale(1.0 / 255) | ls::take(2) | ls::cache;
  static_assert(
      std::is_same_v<decltype(few), const ls::pipeline::Rescale<ls::pipeline::Take<Bytes>>>);
  CHECK(support::gather_all<float>(kept) ==
        support::gather_all<float>(all_bytes() | ls::rescale(1.0 / 255)));
}

TEST_CASE("rescale is the same after shuffle and over a source that is not in memory") {
  const auto shuffled = all_bytes() | ls::shuffle(4) | ls::rescale(0.25, 1);
  const auto before = all_bytes() | ls::rescale(0.25, 1) | ls::shuffle(4);
  CHECK(support::gather_all<float>(shuffled, {2, 2}) == support::gather_all<float>(before, {2, 2}));
  CHECK(support::gather_all<double>(support::Counted{3} | ls::rescale(0.25, 1)).x ==
        std::vector{1.0, 1.25, 1.5});
}
