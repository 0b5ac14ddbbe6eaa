/// \file
#include "lockstep/collectives/algorithms/spin.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace lockstep::detail;

TEST_CASE("a wait polls up to its number of times, and asks once where cores are contended") {
  int calls = 0;
  const auto never = [&] { return ++calls < 0; };
  CHECK(!spin_until(5, never));
  CHECK(calls == 6);
  contended_flag() = true;
  calls = 0;
  CHECK(polls(5) == 0);
  CHECK(!spin_until(5, never));
  CHECK(calls == 1);
  CHECK(spin_until(5, [] { return true; }));
  contended_flag() = false;
  CHECK(polls(5) == 5);
}
