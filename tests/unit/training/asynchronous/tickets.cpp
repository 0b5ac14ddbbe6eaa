/// The steps of an asynchronous phase: their order, the bound on what they miss, and what a lost worker
/// leaves.
#include "lockstep/training/asynchronous/tickets.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <vector>

using lockstep::detail::Tickets;

TEST_CASE("steps are handed out in order, and one at a time with staleness 0") {
  Tickets tickets(3, 0);
  CHECK(tickets.grant() == 0u);
  CHECK(tickets.grant() == std::nullopt);
  tickets.finish(0);
  CHECK(tickets.grant() == 1u);
  CHECK_FALSE(tickets.is_done());
  tickets.finish(1);
  CHECK(tickets.grant() == 2u);
  tickets.finish(2);
  CHECK(tickets.is_done());
  CHECK(tickets.grant() == std::nullopt);
}

TEST_CASE("a phase that continues hands out the steps that are not made") {
  lockstep::detail::MadeSteps made;
  for (const std::uint64_t step : {1u, 0u, 3u, 6u, 3u}) made.add(step);
  CHECK(made == lockstep::detail::MadeSteps{2, {3, 6}});
  CHECK(made.count() == 4);
  Tickets tickets(7, 8, made);
  for (const std::uint64_t step : {2u, 4u, 5u}) {
    CHECK(tickets.grant() == step);
    tickets.finish(step);
  }
  CHECK(tickets.is_done());
  made.add(2);
  CHECK(made == lockstep::detail::MadeSteps{4, {6}});
  for (const std::uint64_t step : {5u, 4u}) made.add(step);
  CHECK(made == lockstep::detail::MadeSteps{7, {}});
}

TEST_CASE("a phase that is to stop leaves no gap below a step that is made or has begun") {
  std::mt19937 draw(2);
  for (int round = 0; round < 500; ++round) {
    lockstep::detail::MadeSteps made;
    for (std::size_t i = draw() % 6; i > 0; --i) made.add(draw() % 8);
    Tickets tickets(20, 1 + draw() % 6, made);
    std::vector<std::uint64_t> begun;
    const auto step = [&] {
      if (const auto next = tickets.grant()) begun.push_back(*next);
      if (begun.empty() || draw() % 2 == 0) return;
      tickets.finish(begun.back());
      made.add(begun.back());
      begun.pop_back();
    };
    for (std::size_t i = draw() % 10; i > 0; --i) step();
    tickets.stop();
    for (int i = 0; i < 1000 && !tickets.is_done(); ++i) step();
    CAPTURE(round, made.all_below);
    CHECK(tickets.is_done());
    CHECK(made.ahead.empty());
  }
}

TEST_CASE("whatever the workers' speeds, no step misses more others than the staleness") {
  std::mt19937 draw(1);
  for (int round = 0; round < 200; ++round) {
    const std::size_t workers = 1 + draw() % 6;
    const std::uint64_t staleness = draw() % 9, steps = 1 + draw() % 60;
    CAPTURE(round, workers, staleness, steps);
    Tickets tickets(steps, staleness);
    std::map<std::uint64_t, std::uint64_t> began;  // steps at workers, with those finished before
    std::vector<std::size_t> times(steps);
    std::uint64_t finished = 0, most = 0;
    std::size_t idle = 0;
    while (!tickets.is_done()) {
      REQUIRE(++idle < 10'000);
      const bool grants = began.size() < 2 * workers && draw() % 2 == 0;
      if (grants) {
        if (const auto step = tickets.grant()) began[*step] = finished;
      } else if (!began.empty()) {
        auto at = began.begin();
        // Mostly not the oldest, as with a slow worker.
        if (draw() % 8 != 0) std::advance(at, static_cast<std::ptrdiff_t>(draw() % began.size()));
        most = std::max(most, finished - at->second);
        ++times[at->first];
        ++finished;
        tickets.finish(at->first);
        began.erase(at);
      }
    }
    CHECK(most <= staleness);
    CHECK(finished == steps);
    CHECK(std::all_of(times.begin(), times.end(), [](std::size_t n) { return n == 1; }));
  }
}
