#include "lockstep/strategies/replica_threads.hpp"

#include <array>
#include <atomic>
#include <barrier>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "lockstep/core/error.hpp"
#include "support/deadline.hpp"
#include "support/signals.hpp"

namespace {

using lockstep::detail::ReplicaThreads;
using testing::Deadline;

std::string text_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE("replica i runs in the same thread each time, replica 0 in the calling thread") {
  const Deadline deadline;
  for (const std::size_t count : {1u, 2u, 5u, 8u}) {
    ReplicaThreads threads(count);
    std::vector<std::thread::id> first(count), now(count);
    threads.run([&](std::size_t i) { first[i] = std::this_thread::get_id(); });
    CHECK(std::set(first.begin(), first.end()).size() == count);
    CHECK(first[0] == std::this_thread::get_id());
    for (int round = 0; round < 200; ++round) {
      threads.run([&](std::size_t i) { now[i] = std::this_thread::get_id(); });
      REQUIRE(now == first);
    }
  }
}

TEST_CASE("each index runs once in each run, and run returns after all have ended") {
  const Deadline deadline;
  ReplicaThreads threads(6);
  std::array<int, 6>
      runs{};  // not atomic: run orders the threads' writes before the caller's reads
  for (int round = 1; round <= 500; ++round) {
    threads.run([&](std::size_t i) {
      if (i == static_cast<std::size_t>(round) % 7) std::this_thread::yield();
      ++runs[i];
    });
    for (const int count : runs) REQUIRE(count == round);
  }
}

TEST_CASE("all replicas run at the same time") {
  const Deadline deadline;
  ReplicaThreads threads(7);
  std::barrier meeting(7);  // replicas that run one after the other would never pass it
  for (int round = 0; round < 20; ++round)
    threads.run([&](std::size_t) { meeting.arrive_and_wait(); });
  for (const auto& error : threads.errors()) CHECK_FALSE(error);
}

TEST_CASE("what a body throws is stored at its index, and the others run to completion") {
  const Deadline deadline;
  ReplicaThreads threads(4);
  std::atomic<int> ended = 0;
  threads.run([&](std::size_t i) {
    if (i == 1) throw std::runtime_error("of replica 1");
    if (i == 3) throw 7;  // not even a std::exception
    ++ended;
  });
  CHECK(ended == 2);
  REQUIRE(threads.errors().size() == 4);
  CHECK_FALSE(threads.errors()[0]);
  CHECK(text_of(threads.errors()[1]) == "of replica 1");
  CHECK_FALSE(threads.errors()[2]);
  REQUIRE(threads.errors()[3]);
  CHECK_THROWS_AS(std::rethrow_exception(threads.errors()[3]), int);
}

TEST_CASE("all replicas may fail, and the next run starts without the old errors") {
  const Deadline deadline;
  ReplicaThreads threads(3);
  std::vector<std::thread::id> before(3), after(3);
  for (int round = 0; round < 50; ++round) {
    threads.run([&](std::size_t i) {
      before[i] = std::this_thread::get_id();
      throw std::runtime_error(std::to_string(i) + " in round " + std::to_string(round));
    });
    for (std::size_t i = 0; i < 3; ++i)
      REQUIRE(text_of(threads.errors()[i]) ==
              std::to_string(i) + " in round " + std::to_string(round));
    threads.run([&](std::size_t i) {
      after[i] = std::this_thread::get_id();
      if (i == 2) throw std::bad_alloc();
    });
    REQUIRE(after == before);
    REQUIRE_FALSE(threads.errors()[0]);
    REQUIRE_FALSE(threads.errors()[1]);
    REQUIRE(text_of(threads.errors()[2]) == std::bad_alloc().what());
  }
}

TEST_CASE("threads that never ran have no errors and can be joined") {
  const Deadline deadline;
  for (int round = 0; round < 200; ++round) {
    const ReplicaThreads threads(3);
    REQUIRE(threads.errors() == std::vector<std::exception_ptr>(3));
  }
}

TEST_CASE("idle replicas use no processor time") {
  const Deadline deadline;
  ReplicaThreads threads(4);
  threads.run([](std::size_t) {});
  const std::clock_t before = std::clock();  // CPU time of all threads of the process
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(std::clock() - before < CLOCKS_PER_SEC / 10);
}

TEST_CASE("a thread that cannot be started is reported with its replica and a remedy") {
  const std::system_error error(std::make_error_code(std::errc::resource_unavailable_try_again));
  try {
    lockstep::detail::throw_no_thread(5, error);
  } catch (const lockstep::DeviceError& e) {
    CHECK(std::string(e.what()) ==
          "mirrored: cannot start a thread for replica 5: Resource temporarily unavailable; use "
          "fewer replicas, or raise the limit of processes (ulimit -u) or of memory (ulimit -v)");
  }
}

TEST_CASE("the replicas' threads block all signals") {
  const auto takers = testing::threads_that_take(SIGINT);
  const ReplicaThreads threads(4);
  CHECK(testing::threads_that_take(SIGINT) == takers);
}
