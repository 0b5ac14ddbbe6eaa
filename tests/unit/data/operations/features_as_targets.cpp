#include "lockstep/data/operations/features_as_targets.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>

#include "lockstep/data/collect.hpp"
#include "lockstep/data/images/per_image_standardization.hpp"
#include "lockstep/data/images/random_crop.hpp"
#include "lockstep/data/images/random_flip.hpp"
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/cache.hpp"
#include "lockstep/data/operations/concatenate.hpp"
#include "lockstep/data/operations/filter.hpp"
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/operations/repeat.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/operations/sample_weights.hpp"
#include "lockstep/data/operations/shard.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/operations/skip.hpp"
#include "lockstep/data/operations/take.hpp"
#include "lockstep/data/operations/window.hpp"
#include "lockstep/data/operations/zip.hpp"
#include "unit/data/image_support.hpp"

namespace ls = lockstep;
using support::check_dataset;
using support::gather_all;
using support::images;

namespace {
constexpr ls::Shape small = ls::shape(4, 4, 3);
const auto noise = ls::map([](auto& example, ls::Philox& draws) {
  for (float& v : example.x) v += 0.1f * static_cast<float>(draws.normal());
});
}  // namespace

TEST_CASE("features become the targets after the operations before, not those after") {
  const auto data = images(150, small) | ls::rescale(1.0 / 255) | ls::features_as_targets;
  CHECK(data.shape(1) == small);
  const auto all = gather_all<float>(data);
  CHECK(all.x == gather_all<float>(images(150, small) | ls::rescale(1.0 / 255)).x);
  CHECK(all.y == all.x);
  const auto wide = gather_all<double>(data);
  CHECK(wide.x == gather_all<double>(images(150, small) | ls::rescale(1.0 / 255)).x);
  CHECK(wide.y == wide.x);

  const auto bytes = gather_all<float>(images(150, small));
  const auto scaled =
      gather_all<float>(images(150, small) | ls::features_as_targets | ls::rescale(1.0 / 255));
  CHECK(scaled.y == bytes.x);
  CHECK(scaled.x == all.x);
}

TEST_CASE("noise and augmentation after features_as_targets leave the targets clean") {
  const auto clean = images(150, small) | ls::rescale(1.0 / 255) | ls::features_as_targets;
  const auto expected = gather_all<float>(clean);
  const auto noisy = clean | noise;
  for (const std::uint64_t pass : {0u, 1u}) {
    const auto all = gather_all<float>(noisy, {1, pass});
    CHECK(all.y == expected.y);
    CHECK(all.x != expected.x);
    CHECK(gather_all<double>(noisy, {1, pass}).y ==
          std::vector<double>(expected.y.begin(), expected.y.end()));
  }
  const auto augmented =
      clean | ls::random_crop(3, 3) | ls::random_flip_left_right | ls::per_image_standardization;
  CHECK(augmented.shape() == ls::shape(3, 3, 3));
  CHECK(augmented.shape(1) == small);
  CHECK(gather_all<float>(augmented).y == expected.y);

  // before features_as_targets: both have the same draws
  const auto both = gather_all<float>(images(150, small) | noise | ls::features_as_targets);
  CHECK(both.y == both.x);
}

TEST_CASE("features as targets satisfy the contract of a data set in any pipeline") {
  const auto clean = images(37, small) | ls::rescale(0.5) | ls::features_as_targets;
  const std::vector<double> weights(37, 0.25);
  const auto bright = [](const auto& example) { return example.x[0] > 60; };
  check_dataset(clean);
  check_dataset(clean | noise);
  check_dataset(images(37, small) | ls::cache | ls::features_as_targets | ls::shuffle(10));
  check_dataset(images(37, small) | noise | ls::features_as_targets | ls::random_crop(2, 2));
  check_dataset(clean | ls::cache | ls::shuffle(37) | ls::repeat(3) | noise | ls::batch(8));
  check_dataset(clean | ls::skip(5) | ls::take(20) | ls::shard(3, 1));
  check_dataset(clean | ls::filter(bright) | ls::shuffle(5));
  check_dataset(clean | ls::concatenate(clean | ls::take(3)) | ls::shuffle(40));
  check_dataset(ls::zip(clean | noise, clean));
  check_dataset(clean | ls::window(4) | noise);
  check_dataset(clean | ls::window(4) | ls::unbatch | noise);
  check_dataset(clean | ls::sample_weights(weights) | ls::shuffle(9));
  check_dataset(support::range(9) | ls::features_as_targets | ls::features_as_targets);
}

TEST_CASE("each pair stays together after a shuffle, a shard and a cache") {
  const auto data = support::range(200) | ls::features_as_targets | ls::cache | ls::shard(2, 1) |
                    ls::shuffle(100) | ls::batch(32, ls::drop_remainder);
  const auto all = ls::collect(data, {3, 4});
  REQUIRE(all.count == 96);
  CHECK(all.targets == all.features);
  CHECK(std::set(all.features.begin(), all.features.end()).size() == 96);
}

TEST_CASE("a map before features_as_targets is called once per example") {
  std::size_t gathered = 0;
  const support::Counted source{.count = 100, .gathered = &gathered};
  gather_all<float>(source | ls::features_as_targets);
  CHECK(gathered == 100);
}
