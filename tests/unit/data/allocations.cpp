#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <new>

#include "lockstep/data/images/cutout.hpp"
#include "lockstep/data/images/per_image_standardization.hpp"
#include "lockstep/data/images/random_crop.hpp"
#include "lockstep/data/images/random_flip.hpp"
#include "lockstep/data/images/resize_with_crop_or_pad.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/cache.hpp"
#include "lockstep/data/operations/concatenate.hpp"
#include "lockstep/data/operations/features_as_targets.hpp"
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/operations/prefetch.hpp"
#include "lockstep/data/operations/repeat.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/operations/sample_weights.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "unit/data/image_support.hpp"

namespace {
std::atomic<int> allocations = 0;

void* counted(void* memory) {
  ++allocations;
  if (!memory) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(std::size_t size) { return counted(std::malloc(size)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto a = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(a, (size + a) / a * a));
}
// Out of line: if they are inlined and operator new is not, g++ 12 warns of mismatched new and
// delete.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace ls = lockstep;

namespace {

/// Allocations in all next() calls of a pass but the first, which fills caches and scratch buffers.
template <class T, class D>
int allocations_of_a_pass(const D& data) {
  ls::Loader<T> loader(data);
  support::LabeledBatch<T, ls::target_of<D, T>> batch;
  loader.begin({});
  bool more = support::next(loader, batch);
  const int before = allocations;
  while (more) more = support::next(loader, batch);
  return allocations - before;
}

}  // namespace

TEST_CASE("batches are assembled without allocations, also across repetitions") {
  const auto data =
      support::range(30) | ls::map([](auto& e) { e.x[0] += 1; }) | ls::rescale(0.5) | ls::cache |
      ls::shuffle(20) | ls::repeat(7) |
      ls::map([](auto& e, ls::Philox& g) { e.x[0] *= g.uniform() < 0.5 ? -1.0f : 1.0f; }) |
      ls::map<ls::shape(2)>(
          [](std::span<const float> in, std::span<float> out) { out[0] = out[1] = in[0]; }) |
      ls::batch(8);
  CHECK(allocations_of_a_pass<float>(data) == 0);
  CHECK(allocations_of_a_pass<double>(data) == 0);
}

TEST_CASE("augmented images cost no allocation per batch") {
  const auto data = support::images(40, ls::shape(8, 8, 3)) | ls::shuffle(20) |
                    ls::resize_with_crop_or_pad(10, 10) | ls::random_crop(8, 8) |
                    ls::random_flip_left_right | ls::random_flip_up_down |
                    ls::per_image_standardization | ls::cutout(3) | ls::batch(8);
  CHECK(allocations_of_a_pass<float>(data) == 0);
  CHECK(allocations_of_a_pass<double>(data) == 0);
}

TEST_CASE("features as targets cost no allocation per batch") {
  const auto data = support::images(40, ls::shape(8, 8, 3)) | ls::rescale(0.5) |
                    ls::features_as_targets | ls::shuffle(20) |
                    ls::map([](auto& e, ls::Philox& g) { e.x[0] += float(g.uniform()); }) |
                    ls::batch(8);
  CHECK(allocations_of_a_pass<float>(data) == 0);
  CHECK(allocations_of_a_pass<double>(data) == 0);
}

TEST_CASE("a prefetching loader allocates nothing per batch") {
  const auto data = support::range(500) | ls::shuffle(100) | ls::batch(5) | ls::prefetch(2);
  CHECK(allocations_of_a_pass<float>(data) == 0);
}

TEST_CASE("sample weights cost no allocation per batch") {
  const std::vector<double> weights(60, 0.5);
  const auto data = support::range(30) | ls::concatenate(support::range(30)) |
                    ls::sample_weights(weights) | ls::shuffle(20) | ls::repeat(3) | ls::batch(8);
  CHECK(allocations_of_a_pass<float>(data) == 0);
  CHECK(allocations_of_a_pass<double>(data) == 0);
}
