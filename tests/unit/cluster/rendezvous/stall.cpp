#include "lockstep/cluster/rendezvous/stall.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "lockstep/cluster/network/clock.hpp"

using namespace lockstep;
using namespace lockstep::detail;
using namespace std::chrono_literals;

namespace {

RankState at(std::uint64_t step, Phase phase, milliseconds still, bool first = false) {
  return {{step, phase, first}, still, false};
}
RankState waiting(milliseconds still, std::size_t whom, std::uint64_t done = 0) {
  return {{5, Phase::reduce}, still, false, {done, whom}};
}

}  // namespace

TEST_CASE("the slowest rank is the straggler, and its phase sets the limit") {
  const StallLimits limits{};
  struct Row {
    std::vector<RankState> ranks;
    std::size_t straggler;
    milliseconds waited, limit;
  };
  const Row rows[] = {
      // the same step: the earlier phase
      {{at(5, Phase::reduce, 9s), at(5, Phase::backward, 8s)}, 1, 8s, 30s},
      // an earlier step
      {{at(5, Phase::reduce, 9s), at(4, Phase::update, 8s)}, 1, 8s, 30s},
      // one rank writes a checkpoint while the others wait
      {{at(5, Phase::checkpoint, 40s), at(6, Phase::reduce, 40s)}, 0, 40s, 600s},
      {{at(5, Phase::callback, 40s), at(6, Phase::reduce, 40s)}, 0, 40s, 600s},
      {{at(5, Phase::reduce, 40s), at(5, Phase::data, 41s)}, 1, 41s, 600s},
      // the first step
      {{at(0, Phase::reduce, 40s), at(0, Phase::forward, 41s, true)}, 1, 41s, 600s},
      // all in the same exchange: the rank that has been there longest
      {{at(5, Phase::reduce, 9s), at(5, Phase::reduce, 10s), at(5, Phase::reduce, 8s)},
       1,
       10s,
       30s},
      // the same: the rank for which most others wait
      {{waiting(10s, 2), waiting(9s, 2), waiting(8s, 0)}, 2, 8s, 30s},
      {{waiting(10s, 7), waiting(9s, 1), waiting(8s, 9)}, 0, 10s, 30s},  // for itself, or none
      // one rank has done less than the others, which wait for a rank that waits for it
      {{waiting(9s, 1, 3), waiting(10s, 2, 2), waiting(8s, 0, 1), waiting(9s, 1, 3)}, 2, 8s, 30s},
      // a hook between two epochs, while the others are already in the next exchange
      {{waiting(9s, 1, 7), {{5, Phase::callback}, 8s, false, {7, {}}}}, 1, 8s, 600s},
      // a later step and phase, but fewer exchanges completed
      {{waiting(9s, 1, 7), {{6, Phase::callback}, 8s, false, {6, {}}}}, 1, 8s, 600s},
      // an idle rank counts from the time at which others wait for it
      {{at(9, Phase::idle, 3600s), at(3, Phase::reduce, 5s)}, 0, 5s, 600s},
      {{at(9, Phase::idle, 2s), at(3, Phase::reduce, 5s)}, 0, 2s, 600s},
      {{at(9, Phase::idle, 3600s), at(3, Phase::forward, 5s)}, 0, 0s, 600s},
  };
  for (const Row& row : rows) {
    const auto found = find_straggler(row.ranks, limits);
    REQUIRE(found);
    CHECK(found->rank == row.straggler);
    CHECK(found->waited == row.waited);
    CHECK(found->limit == row.limit);
  }
}

TEST_CASE("no rank is a straggler while all are idle, and a rank that has left never is") {
  CHECK_FALSE(find_straggler({at(5, Phase::idle, 3600s), at(0, Phase::idle, 3600s)}, {}));
  std::vector<RankState> ranks{at(5, Phase::forward, 9s), at(3, Phase::reduce, 50s)};
  ranks[1].left = true;
  CHECK(find_straggler(ranks, {})->rank == 0);
}

TEST_CASE("time without progress counts only while the thread ran on schedule") {
  ProgressBoard board;
  StallTimer timer;
  auto now = Clock::now() + 1s;
  timer.poll(board, {}, now, false);
  CHECK(timer.stalled_for() == 0ms);
  timer.poll(board, {}, now += 250ms, true);
  timer.poll(board, {}, now += 250ms, true);
  CHECK(timer.stalled_for() == 500ms);
  timer.poll(board, {}, now += 60s, false);
  CHECK(timer.stalled_for() == 500ms);
  board.note({1, Phase::forward, false});
  timer.poll(board, {}, now += 250ms, true);
  CHECK(timer.stalled_for() == 0ms);
  // Publishing the same step and phase again is progress too.
  timer.poll(board, {}, now += 250ms, true);
  board.note({1, Phase::forward, false});
  timer.poll(board, {}, now += 250ms, true);
  CHECK(timer.stalled_for() == 0ms);
}

TEST_CASE("an exchange whose data move is not stalled, however long it lasts") {
  const ProgressBoard board;
  StallTimer timer;
  auto now = Clock::now() + 1s;
  ExchangeProgress exchange{.done = 3, .waits_for = 1};
  timer.poll(board, exchange, now, true);
  for (int i = 0; i < 300; ++i) {
    ++exchange.moved;
    timer.poll(board, exchange, now += 250ms, true);
    CHECK(timer.stalled_for() == 0ms);
  }
  timer.poll(board, exchange, now += 250ms, true);
  exchange.waits_for = 2;  // not progress
  timer.poll(board, exchange, now += 250ms, true);
  CHECK(timer.stalled_for() == 500ms);
  ++exchange.done;
  timer.poll(board, exchange, now += 250ms, true);
  CHECK(timer.stalled_for() == 0ms);
}

TEST_CASE("the board returns the last update") {
  ProgressBoard board;
  CHECK(board.read() == WorkerProgress{});
  for (int phase = 0; phase <= static_cast<int>(last_phase); ++phase) {
    const WorkerProgress p{(1ull << 47) + 5, static_cast<Phase>(phase), phase % 2 == 1};
    board.note(p);
    CHECK(board.read() == p);
    CHECK_FALSE(std::string(to_string(p.phase)).empty());
  }
}

TEST_CASE("an observer that wakes up more than 250 ms late is not on time") {
  const auto begin = Clock::now();
  WakeupMonitor wakeups(begin);
  CHECK(wakeups.on_time(begin + 250ms));
  CHECK(wakeups.on_time(begin + 750ms));
  CHECK_FALSE(wakeups.on_time(begin + 1251ms));
  CHECK(wakeups.on_time(begin + 1500ms));
  CHECK(seconds(2000ms) == "2 s");
  CHECK(seconds(2449ms) == "2.4 s");
  CHECK(seconds(60'000ms) == "60 s");
}
