#include "lockstep/model/plan/buckets.hpp"

#include <catch2/catch_test_macros.hpp>

#include "unit/model/plan/steps.hpp"

using namespace passes;

TEST_CASE("a bucket ends once it is large enough, the last one with the rest") {
  Steps s;
  const ValueId x = s.add(ValueId::batch);
  s.weights(0, 40'000);
  const ValueId y = s.add(x);
  s.weights(40'000, 50'000);
  s.add(y);
  s.weights(90'000, 20'000);
  const Buckets<size> result = buckets_of(s.list, 110'000);
  REQUIRE(result.buckets == 2);
  CHECK(result.bucket[0].begin == 40'000);
  CHECK(result.bucket[0].end == 110'000);
  CHECK(result.bucket[0].after == b);
  CHECK(result.bucket[1].begin == 0);
  CHECK(result.bucket[1].end == 40'000);
  CHECK(result.bucket[1].after == a);
}

TEST_CASE("a bucket waits for a step that fusion moved before it") {
  Steps s;  // b has the lower weights
  const ValueId x = s.add(ValueId::batch);
  s.weights(70'000, 70'000);
  s.add(x);
  s.weights(0, 70'000);
  const Buckets<size> result = buckets_of(s.list, 140'000);
  REQUIRE(result.buckets == 1);
  CHECK(result.bucket[0].begin == 0);
  CHECK(result.bucket[0].end == 140'000);
  CHECK(result.bucket[0].after == a);
}

TEST_CASE("without weights there is no bucket") {
  Steps s;
  s.add(ValueId::batch);
  CHECK(buckets_of(s.list, 0).buckets == 0);
  CHECK(buckets_of(Steps().list, 0).buckets == 0);
}

TEST_CASE("adjacent state to average is one range") {
  constexpr Kept own{.updates_state = true};
  constexpr Kept shared{.exchanges = true, .updates_state = true};
  Steps s;
  const auto add = [&](const Kept& k, std::size_t begin, std::size_t count) {
    s.add(s.list.output, k);
    s.list.step[before(s.list.end)].state = begin;
    s.list.step[before(s.list.end)].state_count = count;
  };
  add(own, 0, 4);
  add({}, 4, 0);
  add(own, 4, 6);
  add(shared, 10, 2);
  add(own, 12, 8);
  const AveragedState<size> result = averaged_state_of(s.list, s.needs);
  REQUIRE(result.averages == 2);
  CHECK(result.averaged[0].begin == 0);
  CHECK(result.averaged[0].end == 10);
  CHECK(result.averaged[1].begin == 12);
  CHECK(result.averaged[1].end == 20);
  CHECK(result.averaged_size == 18);
}
