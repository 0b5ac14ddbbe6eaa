#include "lockstep/data/operations/cache.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <stdexcept>
#include <thread>

#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/operations/skip.hpp"
#include "lockstep/data/operations/take.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;
using support::gather_all;
using support::range;

namespace {
/// Counts the calls of a mapped function.
auto counting(std::shared_ptr<std::atomic<int>> calls) {
  return ls::map([calls](auto& e) {
    ++*calls;
    e.x[0] += 0.5f;
  });
}
}  // namespace

TEST_CASE("data in memory are not stored twice") {
  static_assert(std::is_same_v<decltype(range(3) | ls::cache), decltype(range(3))>);
  static_assert(std::is_same_v<decltype(range(3) | ls::take(2) | ls::cache),
                               decltype(range(3) | ls::take(2))>);
}

TEST_CASE("a cache computes each example once, and copies share it") {
  const auto calls = std::make_shared<std::atomic<int>>(0);
  const auto data = range(700) | counting(calls) | ls::cache;
  const auto copy = data | ls::shuffle(700) | ls::batch(7);
  CHECK(*calls == 0);
  const auto first = gather_all<float>(data);
  CHECK(first == gather_all<float>(range(700) | counting(std::make_shared<std::atomic<int>>(0))));
  const auto wide = gather_all<double>(data);
  CHECK(wide.x == std::vector<double>(first.x.begin(), first.x.end()));
  (void)gather_all<float>(copy, {1, 5});
  CHECK(*calls == 700);
}

TEST_CASE("a cache stores only what take and skip select") {
  const auto calls = std::make_shared<std::atomic<int>>(0);
  const auto data = range(100) | counting(calls) | ls::skip(10) | ls::take(5) | ls::cache;
  CHECK(gather_all<float>(data).x == std::vector{10.5f, 11.5f, 12.5f, 13.5f, 14.5f});
  CHECK(gather_all<float>(data | ls::skip(3)).y == std::vector<std::int32_t>{13, 14});
  CHECK(*calls == 5);
}

TEST_CASE("a cache sits below the rescale, which stays exact in double") {
  const auto data = range(4) | ls::map([](auto& e) { e.x[0] += 1; }) | ls::rescale(0.1) | ls::cache;
  CHECK(gather_all<double>(data).x == std::vector{1 * 0.1, 2 * 0.1, 3 * 0.1, 4 * 0.1});
  const auto twice =
      range(4) | ls::map([](auto&) {}) | ls::rescale(0.1) | ls::rescale(0.1) | ls::cache;
  CHECK(gather_all<double>(twice).x[3] == 3 * 0.1 * 0.1);
  const auto few =
      range(4) | ls::map([](auto&) {}) | ls::rescale(0.1) | ls::take(4) | ls::skip(1) | ls::cache;
  CHECK(gather_all<double>(few).x == std::vector{1 * 0.1, 2 * 0.1, 3 * 0.1});
}

TEST_CASE("a source that is not in memory is read once") {
  std::size_t gathered = 0;
  const auto data = support::Counted{300, &gathered} | ls::cache;
  (void)gather_all<float>(data);
  CHECK(gather_all<double>(data).x[299] == 299.0);
  CHECK(gathered == 300);
}

TEST_CASE("threads that race for an empty cache fill it once") {
  const auto calls = std::make_shared<std::atomic<int>>(0);
  const auto data = range(500) | counting(calls) | ls::cache;
  std::vector<std::vector<float>> results(4);
  {
    std::vector<std::jthread> threads;
    for (auto& result : results)
      threads.emplace_back([&data, &result] { result = gather_all<float>(data).x; });
  }
  CHECK(*calls == 500);
  for (const auto& result : results) CHECK(result == results[0]);
}

TEST_CASE("a cache whose fill threw is filled at the next attempt") {
  const auto calls = std::make_shared<std::atomic<int>>(0);
  const auto data = range(20) | ls::map([calls](auto&) {
                      if (++*calls == 15) throw std::runtime_error("once");
                    }) |
                    ls::cache;
  CHECK_THROWS_AS(gather_all<float>(data), std::runtime_error);
  CHECK(gather_all<float>(data).x == gather_all<float>(range(20)).x);
}
