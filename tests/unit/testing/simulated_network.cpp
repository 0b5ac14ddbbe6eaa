#include "lockstep/testing/simulated_network.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <string>
#include <vector>

#include "lockstep/testing/kernel/sim_time.hpp"
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

TEST_CASE("a link that is cut in one direction ends the job within 4 s, with one cause") {
  struct Link {
    std::size_t from, to;
  };
  for (const auto [from, to] : {Link{1, 2}, Link{3, 1}, Link{0, 2}, Link{2, 0}}) {
    const auto ends = run(4, endless, {.faults = {{1s, ls::testing::cut(from, to)}}});
    for (std::size_t r = 0; r < 4; ++r) {
      INFO("from " << from << " to " << to << ", rank " << r << ": " << ends[r].what);
      CHECK(ends[r].at <= 5s);
      CHECK((ends[r].lost == from || ends[r].lost == to));
      const bool is_apart = from * to == 0 && r == from + to;  // it cannot reach the chief
      CHECK((is_apart || ends[r].lost == ends[0].lost));
    }
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

TEST_CASE("a lost keepalive probe does not end a data connection that waits for the others") {
  CHECK(waits_for_third({}));
  CHECK(waits_for_third(
      {.faults = {{900ms, ls::testing::partition({0}, {1})}, {1500ms, ls::testing::heal()}}}));
}

TEST_CASE("a fault of a rank that does not exist is refused") {
  CHECK_THROWS_WITH(run(2, 1, {.faults = {{1s, ls::testing::kill(2)}}}),
                    ContainsSubstring("a fault names rank 2, but there are 2 workers"));
}
namespace {

/// Several faults of all kinds at random times; the last ones heal the network.
std::vector<ls::testing::TimedFault> random_faults(ls::testing::detail::SimRandom& random,
                                                   std::size_t workers) {
  std::vector<ls::testing::TimedFault> faults;
  const auto rank = [&] { return static_cast<std::size_t>(random.below(workers)); };
  const auto time = [&] { return std::chrono::microseconds(random.below(4'000'000)); };
  for (std::uint64_t i = 0, count = 1 + random.below(6); i < count; ++i) {
    const std::size_t r = rank();
    const auto at = random.below(4) == 0 ? time() / 1000 : time();  // or within the join
    switch (random.below(8)) {
      case 0:
        faults.push_back({at, ls::testing::kill(r)});
        break;
      case 1:
        faults.push_back({at, ls::testing::freeze(r)});
        faults.push_back({at + time(), ls::testing::thaw(r)});
        break;
      case 2:
        faults.push_back({at, ls::testing::cut(r, rank())});
        break;
      case 3:
        faults.push_back({at, ls::testing::partition({r}, {rank(), rank()})});
        break;
      case 4:
        faults.push_back({at, ls::testing::heal()});
        break;
      case 5:
        faults.push_back({at, ls::testing::jump_clock(r, at - 2s)});
        break;
      case 6:
        faults.push_back({at, ls::testing::slow(r, 1 + 10 * random.unit())});
        break;
      default:
        faults.push_back({at, ls::testing::set_loss(0.2 * random.unit())});
        faults.push_back({at + time(), ls::testing::set_loss(0)});
    }
  }
  faults.push_back({8s, ls::testing::heal()});
  faults.push_back({8s, ls::testing::set_loss(0)});
  return faults;
}

/// Whatever happens: each worker that is not killed ends in bounded time, either with the weights of
/// an undisturbed run, or with an error that names a peer.
void check_seed(std::uint64_t seed) {
  ls::testing::detail::SimRandom random(seed);
  const std::size_t workers = 2 + random.below(4), steps = 300;
  static std::map<std::size_t, std::string> expected;
  if (expected[workers].empty()) expected[workers] = run(workers, steps, {})[0].weights;
  Network network{.seed = seed,
                  .latency = std::chrono::microseconds(10 + random.below(20'000)),
                  .jitter = std::chrono::microseconds(random.below(20'000)),
                  .faults = random_faults(random, workers)};
  std::vector<bool> killed(workers);
  for (const auto& fault : network.faults)
    if (fault.fault.kind == ls::testing::Fault::Kind::kill) killed[fault.fault.first[0]] = true;
  const auto ends = run(workers, steps, network);
  for (std::size_t r = 0; r < workers; ++r) {
    INFO("seed " << seed << ", rank " << r << " of " << workers << ": " << ends[r].what << " at "
                 << ends[r].at / 1ms << " ms");
    if (!killed[r]) CHECK((!ends[r].weights.empty() || ends[r].lost));
    if (!ends[r].weights.empty()) CHECK(ends[r].weights == expected[workers]);
    CHECK(ends[r].at < 90s);
  }
}

/// One worker is killed, frozen or cut off at a random moment of a step: all others name it.
void check_cause(std::uint64_t seed) {
  ls::testing::detail::SimRandom random(seed);
  const std::size_t workers = 3 + random.below(4), rank = random.below(workers);
  const auto at = std::chrono::microseconds(100'000 + random.below(1'000'000));
  std::vector<std::size_t> others;
  for (std::size_t r = 0; r < workers; ++r)
    if (r != rank) others.push_back(r);
  const std::uint64_t kind = random.below(3);
  INFO("seed " << seed << ", " << workers << " workers, fault " << kind << " of rank " << rank);
  check_named(run(workers, endless,
                  {.seed = seed,
                   .latency = std::chrono::microseconds(10 + random.below(5'000)),
                   .jitter = std::chrono::microseconds(random.below(5'000)),
                   .faults = {{at, kind == 0   ? ls::testing::kill(rank)
                                   : kind == 1 ? ls::testing::freeze(rank)
                                               : ls::testing::partition({rank}, others)}}}),
              rank, at, kind == 0 ? 1s : 3s);
}

}  // namespace

TEST_CASE("all survivors name the same worker, whenever it fails") {
  for (std::uint64_t seed = 0; seed < 15; ++seed) check_cause(seed);
}

TEST_CASE("all survivors name the same worker, 1000 times", "[.slow]") {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) check_cause(seed);
}

TEST_CASE("workers end in bounded time with the right weights or an error, whatever happens") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) check_seed(seed);
}

TEST_CASE("workers end in bounded time, 1000 times", "[.slow]") {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) check_seed(seed);
}
