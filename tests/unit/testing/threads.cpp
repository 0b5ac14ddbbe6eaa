#include <dlfcn.h>
#include <pthread.h>

#include <unistd.h>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <random>
#include <semaphore>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/testing/run_workers.hpp"

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::run_workers;
using lockstep::testing::Worker;

}  // namespace

TEST_CASE("sleeps and clocks show virtual time, and clocks of machines differ") {
  std::vector<std::chrono::nanoseconds> ends(3);
  std::vector<std::chrono::steady_clock::time_point> starts(3);
  const auto real = std::chrono::steady_clock::now();
  const auto report = run_workers(
      3,
      [&](Worker& worker) {
        const auto wall = std::chrono::system_clock::now();
        starts[worker.rank()] = std::chrono::steady_clock::now();
        std::this_thread::sleep_for(worker.rank() * 1h);
        CHECK(std::chrono::steady_clock::now() - starts[worker.rank()] >= worker.rank() * 1h);
        CHECK(std::chrono::system_clock::now() - wall < worker.rank() * 1h + 1ms);
        ends[worker.rank()] = worker.time();
      },
      {.limit = 3h});
  for (const std::size_t rank : {0u, 1u, 2u})
    CHECK((ends[rank] >= rank * 1h && ends[rank] < rank * 1h + 1ms));
  CHECK(report.duration >= 2h);
  CHECK((starts[0] != starts[1] && starts[1] != starts[2]));
  CHECK(std::chrono::steady_clock::now() - real < 1min);
}

TEST_CASE("a loop that waits for a time ends") {
  run_workers(1, [](Worker& worker) {
    const auto end = std::chrono::steady_clock::now() + 5ms;
    while (std::chrono::steady_clock::now() < end) {
    }
    CHECK((worker.time() >= 5ms && worker.time() < 6ms));
  });
}

TEST_CASE("computing takes the time that a test gives it, and longer on a slow machine") {
  std::vector<std::chrono::nanoseconds> ends(2);
  run_workers(2,
              [&](Worker& worker) {
                for (int i = 0; i < 10; ++i) worker.compute(10ms);
                ends[worker.rank()] = worker.time();
              },
              {.faults = {{0s, lockstep::testing::slow(1, 5)}}});
  CHECK((ends[0] >= 100ms && ends[0] < 101ms));
  CHECK((ends[1] >= 500ms && ends[1] < 505ms));
}

TEST_CASE("threads wait for each other in all ways of the standard library") {
  run_workers(2, [](Worker& worker) {
    std::mutex mutex;
    std::condition_variable changed;
    int turn = 0;
    std::thread other([&] {
      for (int i = 0; i < 100; ++i) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return turn % 2 == 1; });
        ++turn;
        changed.notify_all();
      }
    });
    for (int i = 0; i < 100; ++i) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return turn % 2 == 0; });
      ++turn;
      changed.notify_all();
    }
    other.join();
    CHECK(turn == 200);

    std::unique_lock lock(mutex);
    const auto before = worker.time();
    CHECK_FALSE(changed.wait_for(lock, 3s, [] { return false; }));
    CHECK((worker.time() - before >= 3s && worker.time() - before < 3001ms));
    CHECK(changed.wait_until(lock, std::chrono::system_clock::now() + 2s) ==
          std::cv_status::timeout);
    lock.unlock();

    std::atomic<int> number{0};
    std::jthread waiter([&] {
      number.wait(0);
      ++number;
      number.notify_all();
    });
    std::this_thread::sleep_for(1s);
    number = 1;
    number.notify_all();
    number.wait(1);
    CHECK(number == 2);

    std::counting_semaphore<> semaphore(0);
    std::jthread poster([&] {
      std::this_thread::sleep_for(1s);
      semaphore.release();
    });
    CHECK_FALSE(semaphore.try_acquire_for(100ms));
    semaphore.acquire();

    std::shared_mutex shared;
    shared.lock();
    std::jthread reader([&] { const std::shared_lock read(shared); });
    std::this_thread::sleep_for(1s);
    shared.unlock();

    auto result = std::async(std::launch::async, [] {
      std::this_thread::sleep_for(1s);
      return 7;
    });
    CHECK(result.get() == 7);
  });
}

TEST_CASE("a worker waits for a mutex of a thread outside of the simulation") {
  std::mutex mutex;
  std::atomic<bool> locked{false}, released{false};
  std::jthread outside([&] {
    const std::scoped_lock lock(mutex);
    locked = true;
    std::this_thread::sleep_for(20ms);
    released = true;
  });
  while (!locked) std::this_thread::yield();
  run_workers(2, [&](Worker&) {
    const std::scoped_lock lock(mutex);
    CHECK(released);
  });
}

TEST_CASE("a condition is destroyed by the thread that it has woken") {
  run_workers(1, [](Worker&) {
    for (int i = 0; i < 50; ++i) {
      std::promise<int> promise;
      auto future = promise.get_future();
      std::thread setter([p = std::move(promise)]() mutable { p.set_value(1); });
      CHECK(future.get() == 1);
      setter.join();
    }
  });
}

TEST_CASE("workers have process ids of their own") {
  std::vector<pid_t> ids;
  run_workers(3, [&](Worker&) { ids.push_back(::getpid()); });
  CHECK((ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]));
  CHECK(std::find(ids.begin(), ids.end(), ::getpid()) == ids.end());
}

TEST_CASE("a deadlock is reported with what each thread waits for") {
  std::mutex mutex, other;
  std::condition_variable never;
  try {
    run_workers(3, [&](Worker& worker) {
      if (worker.rank() == 0) return;
      const auto wait = [&](std::mutex& its) {
        std::unique_lock lock(its);
        never.wait(lock);
      };
      if (worker.rank() == 1) wait(mutex);
      std::jthread second([&] { wait(other); });
    });
    FAIL("no exception");
  } catch (const lockstep::Error& e) {
    CHECK_THAT(e.what(), ContainsSubstring("no thread can run, and nothing is on its way"));
    CHECK_THAT(e.what(), ContainsSubstring("rank 1, thread 0: waits for a condition"));
    CHECK_THAT(e.what(), ContainsSubstring("rank 2, thread 0: waits for the end of a thread"));
    CHECK_THAT(e.what(), ContainsSubstring("rank 2, thread 1: waits for a condition"));
    CHECK_THAT(e.what(), !ContainsSubstring("rank 0"));
  }
}

TEST_CASE("a run that does not end fails at its limit") {
  CHECK_THROWS_WITH(run_workers(1,
                                [](Worker&) {
                                  while (true) std::this_thread::sleep_for(1s);
                                },
                                {.limit = 1min}),
                    ContainsSubstring("the limit of virtual time has passed"));
}

TEST_CASE("the first exception of a body is thrown, and a program may run workers again") {
  CHECK_THROWS_WITH(
      run_workers(3,
                  [](Worker& worker) {
                    std::this_thread::sleep_for(worker.rank() == 1 ? 1s : 2s);
                    throw std::runtime_error("of rank " + std::to_string(worker.rank()));
                  }),
      "of rank 1");
  CHECK_THROWS_WITH(run_workers(1, [](Worker&) { run_workers(1, [](Worker&) {}); }),
                    ContainsSubstring("a simulation runs already"));
  CHECK_THROWS_WITH(run_workers(0, [](Worker&) {}), ContainsSubstring("must be at least 1"));
  CHECK(run_workers(1, [](Worker&) {}).duration < 1ms);
}

TEST_CASE("the seed decides the order of threads") {
  const auto order = [](std::uint64_t seed) {
    std::string names;
    const auto report = run_workers(8,
                                    [&](Worker& worker) {
                                      for (int i = 0; i < 4; ++i) {
                                        names += static_cast<char>('a' + worker.rank());
                                        std::this_thread::yield();
                                      }
                                    },
                                    {.seed = seed});
    return names + " " + std::to_string(report.switches);
  };
  CHECK(order(1) == order(1));
  CHECK(order(2) == order(2));
  CHECK(order(1) != order(2));
}

TEST_CASE("threads of OpenMP are refused") {
  void* const library = ::dlopen("libgomp.so.1", RTLD_NOW);
  if (library == nullptr) SKIP("no libgomp");
  const auto routine = reinterpret_cast<void* (*)(void*)>(::dlsym(library, "omp_get_max_threads"));
  CHECK_THROWS_WITH(
      run_workers(2,
                  [&](Worker&) {
                    pthread_t thread{};
                    ::pthread_create(&thread, nullptr, routine, nullptr);
                  }),
      ContainsSubstring("starts threads of OpenMP") && ContainsSubstring("Cpu{.threads = 1}"));
}

TEST_CASE("a thread that polls a variable is reported", "[.slow]") {
  std::atomic<bool> reported{false};
  std::string line;
  const auto before = lockstep::set_log([&](lockstep::LogLevel, std::string_view text) {
    line = text;
    reported = true;
  });
  run_workers(2, [&](Worker& worker) {
    while (worker.rank() == 1 && !reported) {
    }
  });
  lockstep::set_log(before);
  CHECK_THAT(line, ContainsSubstring("thread 0 of rank 1 runs for a minute"));
}

TEST_CASE("the seed decides random devices") {
  const auto draw = [](std::uint64_t seed) {
    unsigned number = 0;
    run_workers(1, [&](Worker&) { number = std::random_device()(); }, {.seed = seed});
    return number;
  };
  CHECK(draw(1) == draw(1));
  CHECK(draw(1) != draw(2));
  std::random_device outside;
  CHECK((outside() != outside() || outside() != outside()));
}

TEST_CASE("a killed worker never runs again, and its next life is another process") {
  std::vector<std::string> lines;
  run_workers(2,
              [&](Worker& worker) {
                const auto note = [&](const char* what) {
                  lines.push_back(what + std::to_string(worker.rank()) + "/" +
                                  std::to_string(worker.life()));
                };
                note("begin ");
                std::this_thread::sleep_for(2s);
                note("end ");
              },
              {.faults = {{1s, lockstep::testing::kill(1)}, {5s, lockstep::testing::restart(1)}}});
  std::sort(lines.begin(), lines.begin() + 2);
  CHECK(lines ==
        std::vector<std::string>{"begin 0/0", "begin 1/0", "end 0/0", "begin 1/1", "end 1/1"});
}

TEST_CASE("a frozen worker goes on where it was") {
  run_workers(
      2,
      [&](Worker& worker) {
        for (int i = 0; i < 4; ++i) std::this_thread::sleep_for(1s);
        CHECK(worker.time() - (worker.rank() == 1 ? 12500ms : 4000ms) < 1ms);
      },
      {.faults = {{1500ms, lockstep::testing::freeze(1)}, {10500ms, lockstep::testing::thaw(1)}}});
}

TEST_CASE("a jump of the system clock leaves the steady clock alone") {
  run_workers(1, [&](Worker& worker) {
    const auto wall = std::chrono::system_clock::now();
    const auto steady = std::chrono::steady_clock::now();
    worker.inject(lockstep::testing::jump_clock(0, -1h));
    CHECK(std::chrono::system_clock::now() - wall < -59min);
    CHECK(std::chrono::steady_clock::now() - steady < 1ms);
  });
}
