#include "lockstep/cluster/rendezvous/stragglers.hpp"

#include <array>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <numeric>
#include <string>

namespace {

using lockstep::Phase;
using lockstep::PhaseTimes;
using namespace std::chrono_literals;

double of(const PhaseTimes& times, Phase phase) { return times[static_cast<std::size_t>(phase)]; }

PhaseTimes times(double data, double forward, double reduce) {
  PhaseTimes result{};
  result[static_cast<std::size_t>(Phase::idle)] = 100;
  result[static_cast<std::size_t>(Phase::data)] = data;
  result[static_cast<std::size_t>(Phase::forward)] = forward;
  result[static_cast<std::size_t>(Phase::reduce)] = reduce;
  return result;
}

}  // namespace

TEST_CASE("each moment counts once, for the phase entered last") {
  lockstep::PhaseClock clock;
  const auto start = lockstep::PhaseClock::Clock::now();
  clock.read_and_reset(start);
  clock.enter(Phase::forward, start + 1s);
  clock.enter(Phase::reduce, start + 3s);
  clock.enter(Phase::forward, start + 3500ms);
  const PhaseTimes first = clock.read_and_reset(start + 4s);
  CHECK(of(first, Phase::idle) == Catch::Approx(1));
  CHECK(of(first, Phase::forward) == Catch::Approx(2.5));
  CHECK(of(first, Phase::reduce) == Catch::Approx(0.5));
  CHECK(std::accumulate(first.begin(), first.end(), 0.0) == Catch::Approx(4));
  const PhaseTimes second = clock.read_and_reset(start + 6s);  // forward continues
  CHECK(of(second, Phase::forward) == Catch::Approx(2));
  CHECK(std::accumulate(second.begin(), second.end(), 0.0) == Catch::Approx(2));
}

TEST_CASE("the table has the phases that occurred, and names the rank that works longest") {
  const std::array ranks{times(0.5, 1, 2), times(0, 3, 0.25), times(0, 1.25, 2)};
  CHECK(lockstep::detail::straggler_table(4, ranks) ==
        "epoch 5, seconds per rank:\n"
        "  rank        data     forward      reduce   own work\n"
        "     0       0.500       1.000       2.000      1.500\n"
        "     1       0.000       3.000       0.250      3.000\n"
        "     2       0.000       1.250       2.000      1.250\n"
        "  rank 1 works longest, 2.18 times the median of the others");
}

TEST_CASE("with two ranks the slower one is compared with the other") {
  const std::array ranks{times(0, 3, 0.25), times(0.5, 1, 2)};
  const std::string table = lockstep::detail::straggler_table(0, ranks);
  CHECK(table.ends_with("\n  rank 0 works longest, 2.00 times as long as the other rank"));
  const std::array<PhaseTimes, 1> alone{times(0, 3, 0)};
  CHECK(lockstep::detail::straggler_table(0, alone).ends_with("\n  rank 0 works longest"));
}

TEST_CASE("ranks without any work get a table too") {
  const std::array<PhaseTimes, 2> ranks{};
  CHECK(lockstep::detail::straggler_table(0, ranks) ==
        "epoch 1, seconds per rank:\n"
        "  rank   own work\n"
        "     0      0.000\n"
        "     1      0.000\n"
        "  rank 0 works longest");
}
