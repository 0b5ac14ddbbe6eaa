#include "lockstep/data/collect.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/cache.hpp"
#include "lockstep/data/operations/filter.hpp"
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/operations/prefetch.hpp"
#include "lockstep/data/operations/repeat.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/operations/sample_weights.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/operations/take.hpp"
#include "lockstep/data/operations/window.hpp"
#include "unit/data/image_support.hpp"

namespace ls = lockstep;

namespace {

/// Checks that `collect` returns the numbers of a single gather of the whole pass.
template <class D>
void check_collects(const D& data) {
  for (const ls::Pass pass : {ls::Pass{1, 0}, ls::Pass{5, 2}}) {
    const auto expected = support::gather_all<float>(data, pass);
    const auto all = ls::collect<float>(data, pass);
    CHECK(all.features == expected.x);
    CHECK(all.targets == expected.y);
    CHECK(all.shape == data.shape());
    CHECK(all.target_shape == data.shape(1));
    CHECK(all.count == data.size());
    const auto wide = support::gather_all<double>(data, pass);
    const auto collected = ls::collect<double>(data, pass);
    CHECK(collected.features == wide.x);
    CHECK(collected.targets == wide.y);
  }
}

}  // namespace

TEST_CASE("collect returns the exact numbers of a pass of any pipeline") {
  const auto images = support::images(300, ls::shape(3, 2, 1));  // more than one chunk
  const auto noise = ls::map([](auto& e, ls::Philox& draws) { e.x[0] += float(draws.normal()); });
  check_collects(images);
  check_collects(images | ls::take(256));
  check_collects(images | ls::take(0));
  check_collects(images | ls::rescale(1.0 / 3) | ls::cache | ls::shuffle(100) | ls::repeat(3));
  check_collects(images | ls::shuffle(300) | noise | ls::batch(7, ls::drop_remainder));
  check_collects(images | ls::filter([](const auto& e) { return e.x[0] > 99; }) | ls::batch(9) |
                 ls::prefetch(2));
  check_collects(images | ls::window(5));
  check_collects(ls::tensors(std::vector{1., 2., 3.}, ls::shape(1), std::vector{.1, .2, .3}));
}

TEST_CASE("collect chooses a type that holds the features exactly") {
  const auto bytes = ls::collect(support::images(3, ls::shape(2)));
  STATIC_CHECK(std::is_same_v<decltype(bytes), const ls::Collected<float, std::int32_t>>);
  CHECK(bytes.targets == std::vector{0, 1, 2});
  const auto reals =
      ls::collect(ls::tensors(std::vector{0.1, 0.2}, ls::shape(2), std::vector{0.3}, ls::shape(1)));
  STATIC_CHECK(std::is_same_v<decltype(reals), const ls::Collected<double, double>>);
  CHECK(reals.features == std::vector{0.1, 0.2});
  CHECK(reals.targets == std::vector{0.3});
  CHECK(reals.weights.empty());
}

TEST_CASE("collect returns the weights in the order of the examples") {
  const auto all =
      ls::collect(support::range(4) | ls::sample_weights({1., 2., 4., 8.}) | ls::shuffle(4));
  REQUIRE(all.weights.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(all.weights[i] == float(1 << all.targets[i]));
}

TEST_CASE("collected arrays make the same data set again") {
  const auto images = support::images(20, ls::shape(3, 2, 1)) | ls::rescale(1.0 / 255);
  const auto all = ls::collect(images);
  const auto again = ls::tensors(all.features, all.shape, all.targets, all.target_shape);
  CHECK(support::gather_all<float>(again) == support::gather_all<float>(images));
}

TEST_CASE("an infinite pipeline is refused") {
  CHECK_THROWS_WITH(ls::collect(support::range(4) | ls::repeat),
                    Catch::Matchers::ContainsSubstring("put take before collect"));
}
