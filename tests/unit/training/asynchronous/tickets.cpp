/// The steps of an asynchronous phase: their order, the bound on what they miss, and what a lost worker
/// leaves; the slices of a step, and copies of those of slow workers.
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

TEST_CASE("idle workers get copies of the slices of a step that are not ready") {
  Tickets tickets(2, 0, {}, 3, 2);
  for (const std::uint64_t slice : {0u, 1u, 2u}) CHECK(tickets.grant() == slice);
  CHECK(tickets.grant() == 0u);  // the longest outstanding one
  CHECK(tickets.grant() == 1u);  // that of the fewest workers
  CHECK(tickets.grant() == std::nullopt);
  CHECK(tickets.accept(0));
  CHECK(tickets.grant() == 2u);
  CHECK(tickets.grant() == std::nullopt);
  CHECK_FALSE(tickets.needs(0));
  CHECK_FALSE(tickets.accept(0));
  CHECK(tickets.accept(2));
  CHECK_FALSE(tickets.is_accepted(0));
  CHECK(tickets.grant() == 1u);
  CHECK(tickets.accept(1));
  CHECK(tickets.is_accepted(0));
  CHECK(tickets.grant() == std::nullopt);  // the update is not made yet
  tickets.finish(0);
  CHECK(tickets.grant() == 3u);
  CHECK_FALSE(tickets.accept(1));
  CHECK(tickets.dropped() == 2);
}

TEST_CASE("whichever workers are slow, a step ends without as many of them as may have copies") {
  std::mt19937 draw(4);
  for (int round = 0; round < 300; ++round) {
    const std::size_t workers = 1 + draw() % 6, backups = draw() % workers;
    const std::size_t slices = draw() % 2 == 0 ? workers - backups : std::size_t{1} << draw() % 4;
    const std::uint64_t steps = 1 + draw() % 12;
    CAPTURE(round, workers, backups, slices, steps);
    Tickets tickets(steps, 0, {}, slices, backups);
    std::vector<std::optional<std::uint64_t>> at(workers);  // the slice of each worker
    std::vector<std::vector<std::size_t>> times(steps, std::vector<std::size_t>(slices));
    std::uint64_t granted = 0, current = 0;
    std::vector<std::size_t> slow;  // these never end
    while (!tickets.is_done()) {
      if (slow.size() < backups && draw() % 8 == 0) slow.push_back(draw() % workers);
      bool moves = false;
      for (std::size_t i = 0; i < 2 * workers; ++i) {
        const std::size_t worker = i < workers ? draw() % workers : i - workers;
        if (std::find(slow.begin(), slow.end(), worker) != slow.end()) {
          if (!at[worker] && (at[worker] = tickets.grant())) ++granted;
          continue;
        }
        if (!at[worker]) {
          at[worker] = tickets.grant();
          if (!at[worker]) continue;
          ++granted;
          REQUIRE(*at[worker] / slices == current);
        } else {
          const std::uint64_t step = *at[worker] / slices;
          const bool is_needed = tickets.needs(*at[worker]);
          REQUIRE(tickets.accept(*at[worker]) == is_needed);
          if (is_needed) ++times[step][*at[worker] % slices];
          at[worker].reset();
          if (is_needed && tickets.is_accepted(step)) {
            tickets.finish(step);
            ++current;
          }
        }
        moves = true;
      }
      REQUIRE(moves);
    }
    for (const auto& step : times)
      CHECK(std::all_of(step.begin(), step.end(), [](std::size_t n) { return n == 1; }));
    std::uint64_t held = 0;
    for (const auto& slice : at) held += slice ? 1 : 0;
    CHECK(tickets.dropped() + held + steps * slices == granted);
  }
}
