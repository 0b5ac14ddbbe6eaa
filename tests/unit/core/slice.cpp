#include "lockstep/core/slice.hpp"

#include <catch2/catch_test_macros.hpp>
#include <random>

using lockstep::slice_of;

TEST_CASE("the slices of a batch are contiguous, cover it, and are sorted by size") {
  std::mt19937_64 random(1);
  for (int run = 0; run < 10'000; ++run) {
    const std::size_t total = random() % 5000, parts = 1 + random() % 64;
    std::size_t end = 0, before = total;
    for (std::size_t index = 0; index < parts; ++index) {
      const auto slice = slice_of(total, parts, index);
      REQUIRE(slice.first == end);
      REQUIRE(slice.count <= before);
      REQUIRE((slice.count == total / parts || slice.count == (total + parts - 1) / parts));
      end += slice.count;
      before = slice.count;
    }
    REQUIRE(end == total);
  }
}

TEST_CASE("a single part is the whole batch") {
  CHECK(slice_of(64, 1, 0) == lockstep::Slice{0, 64});
}

TEST_CASE("with fewer examples than parts the last parts are empty") {
  CHECK(slice_of(2, 4, 1) == lockstep::Slice{1, 1});
  CHECK(slice_of(2, 4, 2) == lockstep::Slice{2, 0});
  CHECK(slice_of(0, 3, 1) == lockstep::Slice{0, 0});
}
