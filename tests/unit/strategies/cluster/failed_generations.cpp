#include "lockstep/strategies/failed_generations.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>

using Failed = lockstep::detail::FailedGenerations;
using Action = Failed::Action;
using std::chrono::seconds;

TEST_CASE("the member to blame leaves when the same generation fails twice, and then all give up") {
  const Failed::Time now{};
  Failed failed(seconds(60));
  const auto fails = [&](std::size_t blamed, std::size_t own, seconds after = seconds(0)) {
    failed.blame(blamed);
    const Action action = failed.ended(own, false, now + after);
    failed.begin(true);
    return action;
  };
  SECTION("the member") {
    CHECK(fails(2, 2) == Action::go_on);
    CHECK(fails(2, 2) == Action::leave);
  }
  SECTION("the others") {
    CHECK(fails(2, 1) == Action::go_on);
    CHECK(fails(2, 1) == Action::go_on);
    CHECK(fails(2, 1) == Action::give_up);
  }
  SECTION("too late") {
    CHECK(fails(2, 1) == Action::go_on);
    CHECK(fails(2, 1, seconds(60)) == Action::give_up);
  }
  SECTION("other members, a step, or no blame") {
    CHECK(fails(2, 2) == Action::go_on);
    failed.begin(false);
    CHECK(fails(2, 2) == Action::go_on);
    failed.blame(2);
    CHECK(failed.ended(2, true, now) == Action::go_on);
    CHECK(fails(2, 2) == Action::go_on);
    CHECK(failed.ended(2, false, now) == Action::go_on);
    CHECK(fails(2, 2) == Action::leave);
  }
}
