#include "lockstep/strategies/job/worker_place.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/strategies/planes/store_plane.hpp"

using lockstep::detail::Cores;
using lockstep::detail::CoreSharers;
using lockstep::detail::devices_exchange;
using lockstep::detail::share_devices;
using lockstep::detail::WorkerPlace;

namespace {

/// A place of one replica on cores of machine a, unless specified otherwise.
WorkerPlace place(std::string cores, std::size_t replicas = 1, std::size_t threads = 0,
                  std::string machine = "a", bool binds = true) {
  return {replicas, threads, binds, std::move(machine), std::move(cores), "-", 0};
}
std::string cores(std::size_t count) { return std::string(count, '1'); }

}  // namespace

TEST_CASE("a worker's place is sent as text") {
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
  WorkerPlace connected = WorkerPlace::here(0, 1, false, "GPU-1,GPU-2");
  connected.devices_connect = true;
  const auto on_gpus = WorkerPlace::parse(connected.text());
  REQUIRE(on_gpus);
  CHECK(on_gpus->devices_connect);
  CHECK_FALSE(there->devices_connect);
  CHECK(on_gpus->replicas == 0);
  CHECK(on_gpus->device_names() == std::vector<std::string>{"GPU-1", "GPU-2"});
}

TEST_CASE("malformed places are refused") {
  for (const char* text : {"", "2", "2 1 1 machine", "2 1 1 machine 11", "0 1 1 machine 11 - 0",
                           "two 1 1 machine 11 - 0", "-1 1 1 machine 11 - 0",
                           "2 x 1 machine 11 - 0", "2 1 2 machine 11 - 0", "2 1 1 machine 11 -",
                           "2 1 1 machine 11 - 2", "2 1 1 machine 11 - 0 more"}) {
    CAPTURE(text);
    CHECK_FALSE(WorkerPlace::parse(text));
  }
}

TEST_CASE("workers that see the same GPUs share them") {
  struct Row {
    const char* what;
    std::vector<std::pair<std::string, std::size_t>> seen;  // and replicas, if specified
    std::vector<std::size_t> replicas, first;
  };
  const std::vector<Row> rows{
      {"one worker has all", {{"a,b,c", 0}}, {3}, {0}},
      {"halves", {{"a,b,c,d", 0}, {"a,b,c,d", 0}}, {2, 2}, {0, 2}},
      {"what is left over goes to the first", {{"a,b,c", 0}, {"a,b,c", 0}}, {2, 1}, {0, 2}},
      {"more workers than GPUs", {{"a", 0}, {"a", 0}, {"a", 0}}, {1, 1, 1}, {0, 1, 2}},
      {"the launcher gave each its own", {{"a,b", 0}, {"c,d", 0}}, {2, 2}, {0, 0}},
      {"two machines",
       {{"a,b", 0}, {"c,d", 0}, {"a,b", 0}, {"c,d", 0}},
       {1, 1, 1, 1},
       {0, 0, 1, 1}},
      {"in another order", {{"a,b", 0}, {"b,a", 0}}, {1, 1}, {0, 1}},
      {"specified", {{"a,b,c,d", 1}, {"a,b,c,d", 3}}, {1, 3}, {0, 1}},
      {"no devices", {{"-", 2}, {"-", 1}}, {2, 1}, {0, 0}}};
  for (const Row& row : rows) {
    CAPTURE(row.what);
    std::vector<WorkerPlace> places;
    for (const auto& [devices, replicas] : row.seen) {
      places.push_back(place("11", replicas));
      places.back().devices = devices;
    }
    share_devices(places);
    for (std::size_t r = 0; r < places.size(); ++r) {
      CAPTURE(r);
      CHECK(places[r].replicas == row.replicas[r]);
      CHECK(places[r].first_device == row.first[r]);
    }
  }
}

TEST_CASE("replicas get devices by name, in whatever order their worker sees them") {
  WorkerPlace one = place("11", 2), other = place("11", 2);
  one.devices = "a,b,c,d";
  other.devices = "d,c,b,a";
  std::vector<WorkerPlace> places{one, other};
  share_devices(places);
  CHECK(places[0].device(0) == 0);  // a
  CHECK(places[0].device(1) == 1);  // b
  CHECK(places[1].device(0) == 1);  // c
  CHECK(places[1].device(1) == 0);  // d
  CHECK(places[1].device(2) == 3);  // a again
}

TEST_CASE("workers share cores if their sets intersect on one machine") {
  const WorkerPlace first = place("0011");
  CHECK(first.shares_cores_with(place("001")));
  CHECK_FALSE(first.shares_cores_with(place("11")));
  CHECK_FALSE(first.shares_cores_with(place("0011", 1, 0, "b")));
}

TEST_CASE("replicas of workers with the same cores are numbered consecutively") {
  const std::vector<WorkerPlace> places{place("11", 2), place("11", 1, 0, "b"), place("11", 3),
                                        place("0011", 4)};
  const CoreSharers first(places, 0), second(places, 1), third(places, 2), fourth(places, 3);
  CHECK(first.replicas == 5);
  CHECK(first.first == 0);
  CHECK(second.replicas == 1);
  CHECK(second.first == 0);
  CHECK(third.replicas == 5);
  CHECK(third.first == 2);
  CHECK(fourth.replicas == 4);  // on separate cores
  CHECK(fourth.first == 0);
  for (const auto& sharers : {first, second, third, fourth}) CHECK_FALSE(sharers.is_one_machine);
}

TEST_CASE("the devices of a job exchange if each replica has its own, and all are connected") {
  struct Row {
    const char* what;
    std::vector<std::pair<std::string, std::size_t>> seen;  // and replicas, if specified
    bool exchange;
  };
  for (const Row& row : {Row{"one each", {{"a", 1}, {"b", 1}}, true},
                         {"shared out", {{"a,b,c", 0}, {"a,b,c", 0}}, true},
                         {"in another order", {{"a,b", 0}, {"b,a", 0}}, true},
                         {"two workers name one", {{"a", 1}, {"a", 1}}, false},
                         {"more replicas than GPUs", {{"a", 2}, {"b", 1}}, false},
                         {"one is among those of another", {{"a", 1}, {"a,b", 0}}, false},
                         {"the cores", {{"-", 1}, {"a", 1}}, false}}) {
    CAPTURE(row.what);
    std::vector<WorkerPlace> places;
    for (const auto& [devices, replicas] : row.seen) {
      places.push_back(place("11", replicas));
      places.back().devices = devices;
      places.back().devices_connect = true;
    }
    share_devices(places);
    CHECK(devices_exchange(places, lockstep::SumOrder::ranks) == row.exchange);
    CHECK_FALSE(devices_exchange(places, lockstep::SumOrder::tree));
    places.back().devices_connect = false;
    CHECK_FALSE(devices_exchange(places, lockstep::SumOrder::ranks));
  }
}

TEST_CASE("a job on one machine is recognized, with shared cores or without") {
  const std::vector<WorkerPlace> places{place("1"), place("01")};
  for (const std::size_t rank : {0u, 1u}) {
    CHECK(CoreSharers(places, rank).is_one_machine);
    CHECK(CoreSharers(places, rank).replicas == 1);
    CHECK_FALSE(CoreSharers(places, rank).bind);  // the user has bound them
  }
}

TEST_CASE("replicas are bound if they leave no core free") {
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

TEST_CASE("no replica is bound if the workers of a machine differ, or one may not be bound") {
  const WorkerPlace one = place("1111", 1, 2);
  for (const WorkerPlace& other :
       {place("1111", 1, 1), place("0111", 1, 2), place("1111", 1, 2, "a", false)}) {
    const std::vector<WorkerPlace> places{one, other};
    CHECK_FALSE(CoreSharers(places, 0).bind);
    CHECK_FALSE(CoreSharers(places, 1).bind);
  }
  const std::vector<WorkerPlace> alike{one, one, place("1111", 1, 4, "b")};
  CHECK(CoreSharers(alike, 0).bind);
  CHECK(CoreSharers(alike, 2).bind);  // it is alone on machine b
}
