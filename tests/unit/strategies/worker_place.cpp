#include "lockstep/strategies/worker_place.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

using lockstep::detail::Cores;
using lockstep::detail::CoreSharers;
using lockstep::detail::WorkerPlace;

namespace {

/// Of one replica on cores of machine a, as far as not said.
WorkerPlace place(std::string cores, std::size_t replicas = 1, std::size_t threads = 0,
                  std::string machine = "a", bool binds = true) {
  return {replicas, threads, binds, std::move(machine), std::move(cores)};
}
std::string cores(std::size_t count) { return std::string(count, '1'); }

}  // namespace

TEST_CASE("a worker's place travels as text") {
  const WorkerPlace here = WorkerPlace::here(3, 2, true);
  CHECK(here.replicas == 3);
  CHECK(here.threads == 2);
  CHECK(here.binds);
  CHECK(here.core_count() == static_cast<std::size_t>(Cores().count()));
  const auto there = WorkerPlace::parse(here.text());
  REQUIRE(there);
  CHECK(there->text() == here.text());
  CHECK(there->machine == here.machine);
  CHECK(there->shares_cores_with(here));
  CHECK_FALSE(WorkerPlace::parse(WorkerPlace::here(1, 0, false).text())->binds);
}

TEST_CASE("what is no worker's place is refused") {
  for (const char* text :
       {"", "2", "2 1 1 machine", "0 1 1 machine 11", "two 1 1 machine 11", "-1 1 1 machine 11",
        "2 x 1 machine 11", "2 1 2 machine 11", "2 1 1 machine 11 more"}) {
    CAPTURE(text);
    CHECK_FALSE(WorkerPlace::parse(text));
  }
}

TEST_CASE("workers share cores if their sets meet on one machine") {
  const WorkerPlace first = place("0011");
  CHECK(first.shares_cores_with(place("001")));
  CHECK_FALSE(first.shares_cores_with(place("11")));
  CHECK_FALSE(first.shares_cores_with(place("0011", 1, 0, "b")));
}

TEST_CASE("replicas of workers with the same cores count one after the other") {
  const std::vector<WorkerPlace> places{place("11", 2), place("11", 1, 0, "b"), place("11", 3),
                                        place("0011", 4)};
  const CoreSharers first(places, 0), second(places, 1), third(places, 2), fourth(places, 3);
  CHECK(first.replicas == 5);
  CHECK(first.first == 0);
  CHECK(second.replicas == 1);
  CHECK(second.first == 0);
  CHECK(third.replicas == 5);
  CHECK(third.first == 2);
  CHECK(fourth.replicas == 4);  // on cores of its own
  CHECK(fourth.first == 0);
  for (const auto& sharers : {first, second, third, fourth}) CHECK_FALSE(sharers.is_one_machine);
}

TEST_CASE("a job on one machine is known, with cores shared or not") {
  const std::vector<WorkerPlace> places{place("1"), place("01")};
  for (const std::size_t rank : {0u, 1u}) {
    CHECK(CoreSharers(places, rank).is_one_machine);
    CHECK(CoreSharers(places, rank).replicas == 1);
    CHECK_FALSE(CoreSharers(places, rank).bind);  // somebody has bound them
  }
}

TEST_CASE("replicas are bound where they leave no core free") {
  struct Row {
    std::size_t cores, workers, replicas, threads;
    bool bind;
  };
  for (const Row& row : {Row{2, 2, 1, 0, true},
                         {2, 2, 1, 1, true},
                         {3, 2, 1, 0, true},
                         {3, 2, 1, 1, false},
                         {4, 2, 1, 1, false},
                         {4, 2, 1, 2, true},
                         {3, 2, 1, 2, false},
                         {4, 2, 2, 1, true},
                         {16, 3, 1, 0, true},
                         {16, 3, 1, 5, false},
                         {2, 4, 1, 1, true},
                         {16, 2, 1, 8, true},
                         {16, 1, 2, 0, false}}) {
    CAPTURE(row.cores, row.workers, row.replicas, row.threads);
    const std::vector<WorkerPlace> places(row.workers,
                                          place(cores(row.cores), row.replicas, row.threads));
    for (std::size_t rank = 0; rank < row.workers; ++rank)
      CHECK(CoreSharers(places, rank).bind == row.bind);
  }
}

TEST_CASE("nobody is bound if the workers of a machine differ, or one may not be") {
  const WorkerPlace one = place("1111", 1, 2);
  for (const WorkerPlace& other :
       {place("1111", 1, 1), place("0111", 1, 2), place("1111", 1, 2, "a", false)}) {
    const std::vector<WorkerPlace> places{one, other};
    CHECK_FALSE(CoreSharers(places, 0).bind);
    CHECK_FALSE(CoreSharers(places, 1).bind);
  }
  const std::vector<WorkerPlace> alike{one, one, place("1111", 1, 4, "b")};
  CHECK(CoreSharers(alike, 0).bind);
  CHECK(CoreSharers(alike, 2).bind);  // it has machine b for itself
}
