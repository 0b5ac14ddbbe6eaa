#include "lockstep/testing/simulated_network.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>
#include <vector>

#include "unit/testing/jobs.hpp"

using namespace jobs;  // NOLINT: the fixture of this file
using Catch::Matchers::ContainsSubstring;
using ls::testing::Network;

namespace {

/// Longer than any test waits.
constexpr std::size_t endless = 100'000;

/// All except `rank` name it within `limit` of `at`.
void check_named(const std::vector<End>& ends, std::size_t rank, std::chrono::nanoseconds at,
                 std::chrono::nanoseconds limit) {
  for (std::size_t r = 0; r < ends.size(); ++r) {
    if (r == rank) continue;
    INFO("rank " << r << ": " << ends[r].what << " at " << ends[r].at / 1ms << " ms");
    CHECK(ends[r].lost == rank);
    CHECK(ends[r].at - at <= limit);
    CHECK(ends[r].at >= at);
  }
}

}  // namespace

TEST_CASE("all survivors name a killed worker within 1 s") {
  for (const std::size_t rank : {0u, 1u, 3u})
    for (const std::chrono::nanoseconds at : {1000ms, 1003ms})
      check_named(run(4, endless, {.seed = rank, .faults = {{at, ls::testing::kill(rank)}}}), rank,
                  at, 1s);
}

TEST_CASE("all survivors name a frozen worker, or one without a network, within 3 s") {
  for (const std::size_t rank : {0u, 2u}) {
    check_named(run(4, endless, {.faults = {{1s, ls::testing::freeze(rank)}}}), rank, 1s, 3s);
    std::vector<std::size_t> others;
    for (std::size_t r = 0; r < 4; ++r)
      if (r != rank) others.push_back(r);
    check_named(run(4, endless, {.faults = {{1s, ls::testing::partition({rank}, others)}}}), rank,
                1s, 3s);
  }
}

TEST_CASE("both sides of a partition end within 4 s") {
  for (const auto& end :
       run(4, endless, {.faults = {{1s, ls::testing::partition({0, 1}, {2, 3})}}})) {
    CHECK(end.lost);
    CHECK(end.at <= 5s);
  }
}

TEST_CASE("nobody is lost") {
  const std::string weights = run(3, 300, {})[0].weights;
  REQUIRE(!weights.empty());
  const auto check = [&](const Network& network) {
    for (const auto& end : run(3, 300, network)) {
      INFO(end.what);
      CHECK(end.weights == weights);
    }
  };
  SECTION("by a latency of 500 ms") {
    for (const auto& end : run(3, 10, {.latency = 500ms})) {
      INFO(end.what);
      CHECK(!end.weights.empty());
    }
  }
  SECTION("by jitter and a loss of 1 %") { check({.seed = 5, .jitter = 20ms, .loss = 0.01}); }
  SECTION("by a partition of 1 s") {
    check({.faults = {{1s, ls::testing::partition({0}, {1, 2})}, {2s, ls::testing::heal()}}});
  }
  SECTION("by a freeze of 1 s") {
    check({.faults = {{1s, ls::testing::freeze(1)}, {2s, ls::testing::thaw(1)}}});
  }
  SECTION("by a suspension of all for a minute") {
    check({.faults = {{1s, ls::testing::freeze(0)},
                      {1s, ls::testing::freeze(1)},
                      {1s, ls::testing::freeze(2)},
                      {61s, ls::testing::thaw(0)},
                      {61s, ls::testing::thaw(1)},
                      {61s, ls::testing::thaw(2)}}});
  }
  SECTION("by jumps of the system clocks") {
    check({.faults = {{1s, ls::testing::jump_clock(0, -1h)},
                      {1500ms, ls::testing::jump_clock(1, 1h)},
                      {2s, ls::testing::jump_clock(2, 24h)}}});
  }
  SECTION("by a worker that is 20 times slower") {
    check({.faults = {{1s, ls::testing::slow(1, 20)}}});
  }
}

TEST_CASE("a worker that was killed while the others wait for it joins in its next life") {
  const auto ends =
      run(3, 5, {.faults = {{10us, ls::testing::kill(1)}, {5s, ls::testing::restart(1)}}});
  for (const auto& end : ends) {
    INFO(end.what);
    CHECK(!end.weights.empty());
    CHECK(end.weights == ends[0].weights);
  }
}

TEST_CASE("a fault of a rank that does not exist is refused") {
  CHECK_THROWS_WITH(run(2, 1, {.faults = {{1s, ls::testing::kill(2)}}}),
                    ContainsSubstring("a fault names rank 2, but there are 2 workers"));
}
TEST_CASE("debug", "[.debug]") {
  ls::testing::run_workers(4, [](ls::testing::Worker& w) { WARN("start"); try { train(strategy_of(w), 100000, {std::make_shared<Steps>(w, 10ms)}); } catch (std::exception& e) { WARN(w.rank() << e.what() << w.time().count()); } }, {.faults = {{1s, ls::testing::kill(0)}}, .limit = 10s});
}
