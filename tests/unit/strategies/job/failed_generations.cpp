#include "lockstep/strategies/job/failed_generations.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>

using Failed = lockstep::detail::FailedGenerations;
using Action = Failed::Action;
using std::chrono::seconds;

namespace {
lockstep::PeerLost loss(std::size_t rank, const char* how = "does not answer") {
  return {rank, "10.0.0.1:1", how, {}};
}
}  // namespace

TEST_CASE("the member to blame leaves when the same generation fails twice, and then all give up") {
  const Failed::Time now{};
  Failed failed(seconds(60));
  const auto fails = [&](std::size_t blamed, std::size_t own, seconds after = seconds(0)) {
    failed.blame(loss(blamed));
    const Action action = failed.ended(own, false, now + after);
    failed.begin(true);
    return action;
  };
  SECTION("the member") {
    CHECK(fails(2, 2) == Action::go_on);
    CHECK(fails(2, 2) == Action::leave);
  }
  SECTION("the others") {
    for (int i = 0; i < 7; ++i) CHECK(fails(2, 1) == Action::go_on);
    CHECK(fails(2, 1) == Action::give_up);
  }
  SECTION("too late") {
    CHECK(fails(2, 1) == Action::go_on);
    CHECK(fails(2, 1, seconds(60)) == Action::go_on);  // rank 2 leaves now
    CHECK(fails(2, 1, seconds(60)) == Action::give_up);
  }
  SECTION("other members, a step, or no blame") {
    CHECK(fails(2, 2) == Action::go_on);
    failed.begin(false);
    CHECK(fails(2, 2) == Action::go_on);
    failed.blame(loss(2));
    CHECK(failed.ended(2, true, now) == Action::go_on);
    CHECK(fails(2, 2) == Action::go_on);
    CHECK(failed.ended(2, false, now) == Action::go_on);
    CHECK(fails(2, 2) == Action::leave);
  }
  SECTION("a generation that another member has ended") {
    failed.blame(loss(0, lockstep::detail::ended_by_another));
    CHECK(failed.ended(2, false, now) == Action::go_on);
    CHECK(fails(2, 2) == Action::go_on);
    CHECK(fails(2, 2) == Action::leave);
  }
}
