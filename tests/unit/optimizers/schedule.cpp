#include "lockstep/optimizers/schedule.hpp"

#include <catch2/catch_test_macros.hpp>
#include <limits>

namespace ls = lockstep;

TEST_CASE("A schedule made from a number returns it in every step") {
  CHECK(ls::Schedule(0.5f)(0) == 0.5);
  CHECK(ls::Schedule(0.25)(1'000'000) == 0.25);
  CHECK(ls::Schedule(1)(7) == 1);
  CHECK(ls::Schedule(0.1).is_constant());
}

TEST_CASE("A schedule made from a function calls it for each step") {
  const ls::Schedule halving = [](std::uint64_t step) {
    return 1.0 / static_cast<double>(1 + step);
  };
  CHECK(halving(0) == 1);
  CHECK(halving(3) == 0.25);
  CHECK_FALSE(halving.is_constant());
  const ls::Schedule copy = halving;
  CHECK(copy(1) == 0.5);
}

TEST_CASE("A learning rate that is negative or not finite is refused") {
  CHECK_THROWS_AS(ls::Schedule(-0.1), ls::UsageError);
  CHECK_THROWS_AS(ls::Schedule(-1), ls::UsageError);
  CHECK_THROWS_AS(ls::Schedule(std::numeric_limits<double>::quiet_NaN()), ls::UsageError);
  CHECK_THROWS_AS(ls::Schedule(std::numeric_limits<float>::infinity()), ls::UsageError);
  const ls::Schedule bad = [](std::uint64_t step) { return step < 5 ? 0.1 : -0.1; };
  CHECK(bad(4) == 0.1);
  CHECK_THROWS_AS(bad(5), ls::UsageError);
}
