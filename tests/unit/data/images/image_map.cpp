#include "lockstep/data/images/image_map.hpp"

#include <catch2/catch_test_macros.hpp>

#include "lockstep/core/slice.hpp"
#include "lockstep/data/images/cutout.hpp"
#include "lockstep/data/images/per_image_standardization.hpp"
#include "lockstep/data/images/random_crop.hpp"
#include "lockstep/data/images/random_flip.hpp"
#include "lockstep/data/images/resize_with_crop_or_pad.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/cache.hpp"
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/operations/prefetch.hpp"
#include "lockstep/data/operations/repeat.hpp"
#include "lockstep/data/operations/sample_weights.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "unit/data/image_support.hpp"

namespace ls = lockstep;
using support::gather_all;
using support::images;

namespace {

constexpr ls::Shape small = ls::shape(8, 8, 3);

/// The augmentation of the CIFAR-10 tutorial, plus cutout.
auto recipe(std::size_t batch) {
  return images(29, small) | ls::cache | ls::shuffle(29) | ls::repeat(2) |
         ls::resize_with_crop_or_pad(12, 12) | ls::random_crop(8, 8) | ls::random_flip_left_right |
         ls::per_image_standardization | ls::cutout(3) | ls::batch(batch);
}

/// All images of a pass, with each global batch gathered in parts by `replicas` replicas.
template <class T, class D>
std::vector<T> in_parts(const D& data, std::size_t replicas, ls::Pass pass) {
  std::vector<std::unique_ptr<ls::Loader<T>>> loaders;
  for (std::size_t r = 0; r < replicas; ++r) {
    loaders.push_back(std::make_unique<ls::Loader<T>>(
        data, [=](std::size_t global) { return ls::slice_of(global, replicas, r); }));
    loaders.back()->begin(pass);
  }
  std::vector<T> all;
  support::LabeledBatch<T, std::int32_t> batch;
  for (bool more = true; more;) {
    for (auto& loader : loaders) {
      more = support::next(*loader, batch);
      if (more) all.insert(all.end(), batch.x, batch.x + batch.slice.count * data.shape().size());
    }
  }
  return all;
}

}  // namespace

TEST_CASE("augmented images are bit-identical for 1, 2 and 7 replicas, with and without prefetch") {
  const auto alone = in_parts<float>(recipe(16), 1, {7, 3});
  CHECK(alone.size() == 58 * small.size());
  CHECK(alone == in_parts<float>(recipe(16), 2, {7, 3}));
  CHECK(alone == in_parts<float>(recipe(16), 7, {7, 3}));
  CHECK(alone == in_parts<float>(recipe(16) | ls::prefetch(3), 7, {7, 3}));
  CHECK(alone == in_parts<float>(recipe(5), 3, {7, 3}));
  CHECK(alone != in_parts<float>(recipe(16), 2, {7, 4}));
  CHECK(in_parts<double>(recipe(16), 1, {7, 3}) == in_parts<double>(recipe(5), 2, {7, 3}));
}

TEST_CASE("random operations draw independently, and a deterministic one changes no draw") {
  const auto one = images(1, small) | ls::repeat(50);
  const auto twice =
      one | ls::random_crop(8, 8, {.padding = 2}) | ls::random_crop(8, 8, {.padding = 2});
  static_assert(decltype(twice)::random_map_count == 2);
  const auto apart = one | ls::random_crop(8, 8, {.padding = 2}) |
                     ls::resize_with_crop_or_pad(8, 8) | ls::random_crop(8, 8, {.padding = 2});
  CHECK(gather_all<float>(twice) == gather_all<float>(apart));
  // With equal draws, the second crop would always undo or double the shift of the first.
  int same = 0;
  const auto first = gather_all<float>(one | ls::random_crop(8, 8, {.padding = 2})).x;
  const auto both = gather_all<float>(twice).x;
  for (std::size_t n = 0; n < 50; ++n)
    same += std::equal(first.begin() + static_cast<std::ptrdiff_t>(n * small.size()),
                       first.begin() + static_cast<std::ptrdiff_t>((n + 1) * small.size()),
                       both.begin() + static_cast<std::ptrdiff_t>(n * small.size()));
  CHECK(same < 12);

  // A random map before them counts too.
  const auto moved = one | ls::map([](auto&, ls::Philox&) {}) | ls::random_flip_left_right;
  CHECK(gather_all<float>(moved) != gather_all<float>(one | ls::random_flip_left_right));
}

TEST_CASE("targets and weights stay with their images") {
  const auto data = images(20, small) | ls::sample_weights(std::vector<double>(20, 0.5)) |
                    ls::random_crop(4, 4) | ls::random_flip_up_down;
  const auto gathered = gather_all<float>(data);
  for (std::size_t n = 0; n < 20; ++n) CHECK(gathered.y[n] == static_cast<std::int32_t>(n));
  std::vector<float> w(2, 1.0f);
  const std::vector<ls::Item> items{{3, 0}, {4, 1}};
  data.gather({}, std::span<const ls::Item>(items),
              ls::RowsOf<std::remove_const_t<decltype(data)>, float>(nullptr, nullptr, w.data()));
  CHECK(w == std::vector<float>{0.5f, 0.5f});
  const auto regression =
      ls::tensors(std::vector<float>(8, 1.f), ls::shape(2, 2, 1), std::vector{1.5f, 2.5f}) |
      ls::random_crop(1, 1);
  CHECK(gather_all<double>(regression).y == std::vector<double>{1.5, 2.5});
}
