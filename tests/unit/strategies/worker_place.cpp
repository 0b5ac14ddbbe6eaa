#include "lockstep/strategies/worker_place.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

using lockstep::detail::Cores;
using lockstep::detail::CoreSharers;
using lockstep::detail::WorkerPlace;

TEST_CASE("a worker's place travels as text") {
  const WorkerPlace here = WorkerPlace::here(3);
  CHECK(here.replicas == 3);
  CHECK(std::count(here.cores.begin(), here.cores.end(), '1') == Cores().count());
  const auto there = WorkerPlace::parse(here.text());
  REQUIRE(there);
  CHECK(there->replicas == 3);
  CHECK(there->machine == here.machine);
  CHECK(there->cores == here.cores);
  CHECK(there->shares_cores_with(here));
}

TEST_CASE("what is no worker's place is refused") {
  for (const char* text : {"", "2", "2 machine", "0 machine 11", "two machine 11", "-1 machine 11",
                           "2 machine 11 more"}) {
    CAPTURE(text);
    CHECK_FALSE(WorkerPlace::parse(text));
  }
}

TEST_CASE("workers share cores if their sets meet on one machine") {
  const WorkerPlace first{1, "a", "0011"};
  CHECK(first.shares_cores_with({1, "a", "001"}));
  CHECK_FALSE(first.shares_cores_with({1, "a", "11"}));
  CHECK_FALSE(first.shares_cores_with({1, "b", "0011"}));
}

TEST_CASE("replicas of workers with the same cores count one after the other") {
  const std::vector<WorkerPlace> places{
      {2, "a", "11"}, {1, "b", "11"}, {3, "a", "11"}, {4, "a", "0011"}};
  const CoreSharers first(places, 0), second(places, 1), third(places, 2), fourth(places, 3);
  CHECK(first.replicas == 5);
  CHECK(first.first == 0);
  CHECK(second.replicas == 1);
  CHECK(second.first == 0);
  CHECK(third.replicas == 5);
  CHECK(third.first == 2);
  CHECK(fourth.replicas == 4);  // bound to cores of its own
  CHECK(fourth.first == 0);
  for (const auto& sharers : {first, second, third, fourth}) {
    CHECK_FALSE(sharers.is_one_machine);
    CHECK(sharers.have_same_cores);
  }
}

TEST_CASE("workers whose cores meet without being the same are told apart") {
  const std::vector<WorkerPlace> places{{1, "a", "11"}, {1, "a", "01"}, {1, "a", "001"}};
  CHECK_FALSE(CoreSharers(places, 0).have_same_cores);
  CHECK_FALSE(CoreSharers(places, 1).have_same_cores);
  CHECK(CoreSharers(places, 2).have_same_cores);
  CHECK(CoreSharers(places, 2).replicas == 1);
}

TEST_CASE("a job on one machine is known, with cores shared or not") {
  const std::vector<WorkerPlace> places{{1, "a", "1"}, {1, "a", "01"}};
  CHECK(CoreSharers(places, 0).is_one_machine);
  CHECK(CoreSharers(places, 1).is_one_machine);
  CHECK(CoreSharers(places, 1).replicas == 1);
}
