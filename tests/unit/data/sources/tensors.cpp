#include "lockstep/data/sources/tensors.hpp"

#include <catch2/catch_test_macros.hpp>

#include "lockstep/core/error.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;

TEST_CASE("doubles in memory are gathered unchanged, and rounded once as float") {
  const std::vector<double> x{0.1, 1.0 / 3, 1e300, -2.0}, y{0.7, 1e-300};
  const auto data = ls::tensors(x, ls::shape(2), y);
  static_assert(std::is_same_v<ls::target_of<std::remove_const_t<decltype(data)>>, float>);
  const auto wide = support::gather_all<double>(data);
  CHECK(wide.x == x);
  CHECK(wide.y == y);
  const auto narrow = support::gather_all<float>(
      ls::tensors(std::vector{0.1, 1.0 / 3}, ls::shape(1), std::vector{0.7, 0.2}));
  CHECK(narrow.x == std::vector{0.1f, 1.0f / 3});
  CHECK(narrow.y == std::vector{0.7f, 0.2f});
}

TEST_CASE(
    "rows are gathered by index, each with its target, also when a row is longer than a block") {
  constexpr int side = 19;
  std::vector<std::uint8_t> x(5 * side);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint8_t>(7 * i % 256);
  const auto data = ls::tensors(x, ls::shape(side), std::vector<std::int32_t>{5, 6, 7, 8, 9});
  const std::vector<ls::Item> items{{4, 0}, {0, 1}, {4, 2}, {2, 3}};
  std::vector<float> out(items.size() * side);
  std::vector<std::int32_t> labels(items.size());
  support::gather(data, {}, items, out, labels);
  CHECK(labels == std::vector<std::int32_t>{9, 5, 9, 7});
  for (std::size_t i = 0; i < items.size(); ++i)
    for (std::size_t j = 0; j < side; ++j)
      REQUIRE(out[i * side + j] == static_cast<float>(x[items[i].index * side + j]));
}

TEST_CASE("targets may have their own shape") {
  const auto data = ls::tensors(std::vector{1.f, 2.f}, ls::shape(1),
                                std::vector{1.f, 2.f, 3.f, 4.f}, ls::shape(2));
  CHECK(data.size() == 2u);
  CHECK(data.shape(1) == ls::shape(2));
  CHECK(support::gather_all<float>(data).y == std::vector{1.f, 2.f, 3.f, 4.f});
}

TEST_CASE("copies of tensors share memory, which outlives the original") {
  std::vector<float> big(1000, 2.0f);
  auto original = std::make_unique<ls::Tensors<float, float>>(
      ls::tensors(big, ls::shape(1), std::vector<float>(1000)));
  const auto copy = *original;
  CHECK(copy.features().data() == original->features().data());
  original.reset();
  CHECK(copy.features()[999] == 2.0f);
}

TEST_CASE("tensors whose sizes do not fit are refused") {
  const std::vector<float> six(6), two(2), none;
  CHECK_THROWS_AS(ls::tensors(six, ls::shape(4), two), ls::UsageError);
  CHECK_THROWS_AS(ls::tensors(six, ls::shape(2), two), ls::UsageError);
  CHECK_THROWS_AS(ls::tensors(six, ls::shape(3), two, ls::shape(3)), ls::UsageError);
  CHECK_THROWS_AS(ls::tensors(six, ls::shape(3, 0), two), ls::UsageError);
  CHECK_THROWS_AS(ls::tensors(six, ls::shape(-3), two), ls::UsageError);
  CHECK_THROWS_AS(ls::tensors(six, ls::shape(65536, 65536, 65536, 65536), two), ls::UsageError);
  CHECK(ls::tensors(none, ls::shape(3), none).size() == 0u);
}
