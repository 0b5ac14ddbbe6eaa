#include "lockstep/data/loader.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <thread>

#include "lockstep/data/operations/cache.hpp"
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/operations/repeat.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/operations/take.hpp"
#include "support/signals.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;
using support::range;

namespace {

struct Copied {
  std::vector<float> x;
  std::vector<std::int32_t> y;
  std::size_t first = 0, global = 0;
  std::uint64_t first_ordinal = 0;
  bool operator==(const Copied&) const = default;
};

template <class T>
std::vector<Copied> rest_of(ls::Loader<T>& loader, std::size_t row = 1) {
  std::vector<Copied> all;
  support::LabeledBatch<T, std::int32_t> batch;
  while (support::next(loader, batch)) {
    const std::size_t n = batch.slice.count;
    all.push_back({{batch.x, batch.x + n * row},
                   {batch.y, batch.y + n},
                   batch.slice.first,
                   batch.slice.global_count,
                   batch.slice.first_ordinal});
  }
  return all;
}

template <class D>
std::vector<Copied> pass_of(const D& data, ls::Pass pass = {}, std::uint64_t skip = 0,
                            ls::Loader<float>::Share share = {}) {
  ls::Loader<float> loader(data, std::move(share));
  loader.begin(pass, skip);
  return rest_of(loader);
}

/// The share of replica `index` of `parts` in each batch.
template <class D>
std::vector<std::vector<std::int32_t>> held(const D& data, std::size_t parts, std::size_t index) {
  std::vector<std::vector<std::int32_t>> all;
  for (const Copied& batch :
       pass_of(data, {}, 0, [=](std::size_t global) { return ls::slice_of(global, parts, index); }))
    all.push_back(batch.y);
  return all;
}

using Parts = std::vector<std::vector<std::int32_t>>;

/// A map that throws at the twelfth example.
const auto fails_at_eleven = ls::map([](auto& e) {
  if (e.x[0] == 11) throw std::runtime_error("eleven");
});

}  // namespace

TEST_CASE("batches cover the pass in order, and the last one may be short") {
  const auto all = pass_of(range(10) | ls::batch(4));
  REQUIRE(all.size() == 3);
  CHECK(all[0] == Copied{{0, 1, 2, 3}, {0, 1, 2, 3}, 0, 4, 0});
  CHECK(all[2] == Copied{{8, 9}, {8, 9}, 0, 2, 8});
}

TEST_CASE("replicas hold the slices of the tf.distribute documentation") {
  // range(6).batch(4) on two; range(4).batch(4) on five; DATA sharding of 12 on two by four.
  CHECK(held(range(6) | ls::batch(4), 2, 0) == Parts{{0, 1}, {4}});
  CHECK(held(range(6) | ls::batch(4), 2, 1) == Parts{{2, 3}, {5}});
  for (std::int32_t i = 0; i < 4; ++i)
    CHECK(held(range(4) | ls::batch(4), 5, static_cast<std::size_t>(i)) == Parts{{i}});
  CHECK(held(range(4) | ls::batch(4), 5, 4) == Parts{{}});
  CHECK(held(range(12) | ls::batch(4), 2, 0) == Parts{{0, 1}, {4, 5}, {8, 9}});
  CHECK(held(range(12) | ls::batch(4), 2, 1) == Parts{{2, 3}, {6, 7}, {10, 11}});
  // range(8).batch(4) on three: tf yields 2, 2, 0; lockstep's sizes differ by at most one.
  CHECK(held(range(8) | ls::batch(4), 3, 0) == Parts{{0, 1}, {4, 5}});
  CHECK(held(range(8) | ls::batch(4), 3, 1) == Parts{{2}, {6}});
  CHECK(held(range(8) | ls::batch(4), 3, 2) == Parts{{3}, {7}});
}

TEST_CASE("the shares of a batch add up to the batch, with the same random maps") {
  auto data =
      range(61) |
      ls::map([](auto& e, ls::Philox& draws) { e.x[0] = static_cast<float>(draws.uniform()); }) |
      ls::shuffle(20) | ls::batch(16) | ls::prefetch(2);
  const auto whole = pass_of(data, {3, 1});
  std::vector<Copied> joined(whole.size());
  for (std::size_t replica = 0; replica < 7; ++replica) {
    const auto part =
        pass_of(data, {3, 1}, 0, [=](std::size_t g) { return ls::slice_of(g, 7, replica); });
    REQUIRE(part.size() == whole.size());
    for (std::size_t i = 0; i < part.size(); ++i) {
      CHECK(part[i].first == joined[i].x.size());
      CHECK(part[i].global == whole[i].global);
      CHECK(part[i].first_ordinal == 16 * i + part[i].first);
      joined[i].x.insert(joined[i].x.end(), part[i].x.begin(), part[i].x.end());
      joined[i].y.insert(joined[i].y.end(), part[i].y.begin(), part[i].y.end());
    }
  }
  for (std::size_t i = 0; i < whole.size(); ++i) {
    CHECK(joined[i].x == whole[i].x);
    CHECK(joined[i].y == whole[i].y);
  }
}

TEST_CASE("a pass begun in the middle continues like the full pass") {
  auto data = range(40) | ls::shuffle(40) | ls::repeat(2) |
              ls::map([](auto& e, ls::Philox& d) { e.x[0] += static_cast<float>(d.uniform()); }) |
              ls::batch(8);
  const auto whole = pass_of(data, {2, 6});
  const auto rest = pass_of(data, {2, 6}, 24);
  CHECK(rest == std::vector<Copied>(whole.begin() + 3, whole.end()));
  CHECK(pass_of(data, {2, 6}, 80).empty());
  CHECK(pass_of(data, {2, 6}, 1'000).empty());
}

TEST_CASE("prefetch changes only when a batch is assembled") {
  auto data = range(333) | ls::rescale(0.5) | ls::cache | ls::shuffle(50) | ls::batch(7);
  const auto plain = pass_of(data, {1, 4});
  for (const std::size_t depth : {0u, 1u, 2u, 5u, 100u})
    CHECK(pass_of(data | ls::prefetch(depth), {1, 4}) == plain);
}

TEST_CASE("one loader runs several passes, also after a pass was abandoned") {
  auto data = range(100) | ls::shuffle(100) | ls::batch(8);
  auto ahead = data | ls::prefetch(2);
  ls::Loader<float> loader(ahead);
  support::LabeledBatch<float, std::int32_t> batch;
  for (std::uint64_t pass = 0; pass < 10; ++pass) {
    loader.begin({1, pass});
    for (std::uint64_t i = 0; i < pass; ++i) REQUIRE(support::next(loader, batch));
    loader.begin({1, pass});
    REQUIRE(rest_of(loader) == pass_of(data, {1, pass}));
    REQUIRE(!support::next(loader, batch));
  }
}

TEST_CASE("a batch stays valid until the second next() after it") {
  const auto check = [](const auto& data) {
    ls::Loader<float> loader(data);
    support::LabeledBatch<float, std::int32_t> now, before;
    loader.begin({});
    REQUIRE(support::next(loader, before));
    for (int i = 1; support::next(loader, now); ++i) {
      // Gives a faulty thread time to overwrite the batch.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      REQUIRE(before.x[0] == static_cast<float>(4 * (i - 1)));
      REQUIRE(before.y[3] == 4 * i - 1);
      before = now;
    }
  };
  check(range(80) | ls::batch(4));
  check(range(80) | ls::batch(4) | ls::prefetch(1));
  check(range(80) | ls::batch(4) | ls::prefetch(3));
}

TEST_CASE("prefetch(k) assembles k batches ahead and no more") {
  const auto made = std::make_shared<std::atomic<int>>(0);
  auto data = range(100) | ls::map([made](auto&) { ++*made; }) | ls::batch(1) | ls::prefetch(3);
  ls::Loader<float> loader(data);
  support::LabeledBatch<float, std::int32_t> batch;
  loader.begin({});
  for (int taken = 1; taken <= 20; ++taken) {
    REQUIRE(support::next(loader, batch));
    if (taken == 1) continue;  // the second buffer that the caller may hold is still free
    for (int wait = 0; *made < taken + 3 && wait < 2000; ++wait)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    REQUIRE(*made == taken + 3);
  }
}

TEST_CASE("memory for batches is 64-byte aligned and stays where it is") {
  auto data = range(50) | ls::batch(3) | ls::prefetch(1);
  ls::Loader<double> loader(data);
  support::LabeledBatch<double, std::int32_t> batch;
  std::vector<const void*> seen;
  for (std::uint64_t pass = 0; pass < 3; ++pass) {
    loader.begin({1, pass});
    while (support::next(loader, batch)) {
      CHECK(reinterpret_cast<std::uintptr_t>(batch.x) % 64 == 0);
      CHECK(reinterpret_cast<std::uintptr_t>(batch.y) % 64 == 0);
      if (std::find(seen.begin(), seen.end(), batch.x) == seen.end()) seen.push_back(batch.x);
    }
  }
  CHECK(seen.size() == 3);
}

TEST_CASE("next() throws a pipeline's exception at its batch, and again until begin()") {
  const auto check = [](const auto& data) {
    ls::Loader<float> loader(data);
    support::LabeledBatch<float, std::int32_t> batch;
    for (std::uint64_t pass = 0; pass < 3; ++pass) {
      loader.begin({1, pass});
      REQUIRE(support::next(loader, batch));
      REQUIRE(support::next(loader, batch));
      REQUIRE(batch.y[4] == 9);
      REQUIRE_THROWS_AS(support::next(loader, batch), std::runtime_error);
      REQUIRE_THROWS_AS(support::next(loader, batch), std::runtime_error);
    }
  };
  check(range(30) | fails_at_eleven | ls::batch(5));
  check(range(30) | fails_at_eleven | ls::batch(5) | ls::prefetch(1));
  check(range(30) | fails_at_eleven | ls::batch(5) | ls::prefetch(8));
}

TEST_CASE("a loader may be destroyed at any moment") {
  auto endless = range(10) | ls::repeat | ls::batch(3) | ls::prefetch(2);
  for (int taken = 0; taken < 30; ++taken) {
    ls::Loader<float> loader(endless);
    if (taken == 0) continue;
    loader.begin({});
    support::LabeledBatch<float, std::int32_t> batch;
    for (int i = 1; i < taken % 6; ++i) REQUIRE(support::next(loader, batch));
  }
  auto failing = range(30) | fails_at_eleven | ls::batch(5) | ls::prefetch(4);
  ls::Loader<float> loader(failing);
  loader.begin({});  // its exception is never collected
}

TEST_CASE("a batch larger than the data holds all data and needs no more memory") {
  const auto all = pass_of(range(5) | ls::batch(std::size_t{1} << 60));
  REQUIRE(all.size() == 1);
  CHECK(all[0].y.size() == 5);
  CHECK(pass_of(range(0) | ls::batch(4)).empty());
}

TEST_CASE("a loader of features alone gathers no targets") {
  const auto data = range(10) | ls::rescale(2) | ls::batch(4);
  ls::Loader<float> loader(data, {}, {}, ls::FieldRole::feature);
  CHECK(loader.fields().size() == 1);
  support::LabeledBatch<float> batch;
  loader.begin({});
  REQUIRE(support::next(loader, batch));
  CHECK(batch.y == nullptr);
  CHECK(std::vector<float>(batch.x, batch.x + 4) == std::vector<float>{0, 2, 4, 6});
}

TEST_CASE("class weights add a field to unweighted data") {
  const auto data = range(5) | ls::batch(5) | ls::prefetch(1);
  ls::Loader<float> loader(data, {}, {{2, 0.5}});
  REQUIRE(loader.fields().size() == 3);
  CHECK(loader.fields()[2].role == ls::FieldRole::weight);
  support::LabeledBatch<float> batch;
  loader.begin({});
  REQUIRE(support::next(loader, batch));
  CHECK(std::vector<float>(batch.w, batch.w + 5) == std::vector<float>{1, 1, 0.5f, 1, 1});
}

TEST_CASE("a loader refuses next() before begin() and a share outside the batch") {
  auto data = range(5) | ls::batch(2);
  ls::Loader<float> loader(data);
  support::LabeledBatch<float, std::int32_t> batch;
  CHECK_THROWS_AS(support::next(loader, batch), ls::UsageError);
  using Loader = ls::Loader<float>;
  CHECK_THROWS_AS(Loader(data, [](std::size_t g) { return ls::Slice{1, g}; }), ls::UsageError);
}

TEST_CASE("the prefetch thread blocks signals") {
  const auto takers = testing::threads_that_take(SIGINT);
  auto data = range(64) | ls::batch(4) | ls::prefetch(2);
  ls::Loader<float> loader(data);
  loader.begin({});
  CHECK(testing::threads_that_take(SIGINT) == takers);
}
