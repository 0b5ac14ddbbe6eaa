#include "lockstep/collectives/shared_memory_group.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "contract.hpp"
#include "lockstep/collectives/shared_channel.hpp"
#include "lockstep/collectives/shared_memory.hpp"

namespace {

using namespace std::chrono_literals;
using contract::run_members;
using lockstep::SharedMemory;
using lockstep::SharedMemoryGroup;
using lockstep::SumOrder;

SharedMemory::Options memory_for(std::size_t size, std::size_t channels = 1) {
  return {.bytes = SharedMemoryGroup::bytes(size, channels),
          .run = "a test",
          .name = "memory",
          .key = "a key"};
}

/// The members are threads that share one mapping, so that the thread sanitizer sees all accesses.
template <SumOrder sum_order, int spins>
class Threads {
 public:
  static constexpr std::size_t max_size = 8;
  static constexpr SumOrder order = sum_order;
  static constexpr bool can_end = true;

  Threads(std::size_t size, std::chrono::milliseconds timeout) {
    const auto memory = SharedMemory::create(memory_for(size));
    for (std::size_t r = 0; r < size; ++r)
      members_.emplace_back(
          memory, SharedMemoryGroup::Options{
                      .rank = r, .size = size, .timeout = timeout, .order = order, .spins = spins});
  }
  std::size_t size() const { return members_.size(); }
  SharedMemoryGroup& member(std::size_t rank) { return members_[rank]; }

 private:
  std::vector<SharedMemoryGroup> members_;
};
using Sleeping = Threads<SumOrder::ranks, 0>;
using Spinning = Threads<SumOrder::ranks, 1000>;
using Tree = Threads<SumOrder::tree, 0>;

/// The members are processes; each opens the memory that this process has created.
template <SumOrder sum_order, int spins>
class Forks {
 public:
  static constexpr std::size_t max_size = 8;
  static constexpr SumOrder order = sum_order;
  static constexpr bool can_end = true;
  static constexpr bool in_processes = true;

  Forks(std::size_t size, std::chrono::milliseconds timeout)
      : timeout_(timeout), memory_(SharedMemory::create(memory_for(size))), members_(size) {}
  std::size_t size() const { return members_.size(); }
  SharedMemoryGroup& member(std::size_t rank) {
    auto& member = members_[rank];
    if (!member)
      member.emplace(
          ::getpid() == creator_ ? memory_ : SharedMemory::open(place_, memory_for(size())),
          SharedMemoryGroup::Options{
              .rank = rank, .size = size(), .timeout = timeout_, .order = order, .spins = spins});
    return *member;
  }

 private:
  std::chrono::milliseconds timeout_;
  std::shared_ptr<SharedMemory> memory_;
  std::string place_ = memory_->place();
  ::pid_t creator_ = ::getpid();
  std::vector<std::optional<SharedMemoryGroup>> members_;
};
using SleepingForks = Forks<SumOrder::ranks, 0>;
using SpinningTreeForks = Forks<SumOrder::tree, 1000>;

/// More than three chunks of each member, in an odd number of elements.
template <class T>
std::size_t several_chunks(std::size_t size) {
  return (3 * lockstep::detail::SharedChannel::chunk_of(size) + 1000) / sizeof(T) + 13;
}

/// n numbers of a member that are cheap to compute. Their period divides no size of a chunk, and
/// sums of eight members are exact in every type.
template <class T>
std::vector<T> pattern(std::size_t n, std::size_t rank) {
  std::vector<T> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<T>(i % 5 + rank);
  return x;
}
template <class T>
bool is_pattern_sum(const std::vector<T>& x, std::size_t members) {
  const std::size_t ranks = members * (members - 1) / 2;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i] != static_cast<T>(members * (i % 5) + ranks)) return false;
  return true;
}

template <class T, class Maker>
void check_large(std::size_t size) {
  Maker maker(size, contract::no_timeout);
  const std::size_t n = several_chunks<T>(size);
  INFO(size << " members");
  CHECK(contract::first_error(
            run_members(maker, "several chunks", [&](auto& member, std::size_t rank) {
              // no sums, sums that just travel with the data, and sums that travel separately
              for (const std::size_t m : {std::size_t{0}, std::size_t{512}, std::size_t{513},
                                          several_chunks<double>(size)}) {
                auto x = pattern<T>(m > 1000 ? 5 : n, rank);
                auto sums = pattern<double>(m, rank);
                member.all_reduce(x.data(), x.size(), sums.data(), m);
                contract::expect(is_pattern_sum(x, size), "all_reduce: not the sum");
                contract::expect(is_pattern_sum(sums, size), "all_reduce: not the sum of the sums");
              }
              auto x = pattern<T>(n, rank);
              member.broadcast(x.data(), n, size - 1);
              contract::expect(x == pattern<T>(n, size - 1), "broadcast: not the root's numbers");
              x = pattern<T>(n, rank);
              std::vector<T> all(size * n);
              member.all_gather(x.data(), n, all.data());
              for (std::size_t r = 0; r < size; ++r)
                contract::expect(
                    std::equal(all.begin() + std::ptrdiff_t(r * n),
                               all.begin() + std::ptrdiff_t((r + 1) * n), pattern<T>(n, r).begin()),
                    "all_gather: not the members' numbers by rank");
              member.barrier();
            })) == "");
}

/// A member's process loops until it gets an error, which it reports.
struct Looping {
  std::atomic<int> rounds{0};
  std::atomic<bool> has_ended{false};
  contract::ReportedError error{};
  contract::Clock::time_point at{};
};

class LoopingProcesses {
 public:
  LoopingProcesses(std::size_t size, std::chrono::milliseconds timeout, std::size_t n)
      : maker(size, timeout), reports(size) {
    for (std::size_t r = 0; r < size; ++r) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      ::alarm(60);
      std::vector<std::uint32_t> x(n, 1);
      try {
        while (true) {
          maker.member(r).all_reduce(x.data(), n);
          ++reports[r].rounds;
        }
      } catch (...) {
        reports[r].error = contract::ReportedError::current();
      }
      reports[r].at = contract::Clock::now();
      reports[r].has_ended = true;
      ::_exit(0);
    }
    go_on_after(0);
  }
  ~LoopingProcesses() {
    for (const ::pid_t child : children) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }
  void go_on_after(int rounds) {
    const contract::Deadline deadline("the processes");
    for (const Looping& report : reports)
      while (report.rounds < rounds + 5) std::this_thread::sleep_for(100us);
  }
  const Looping& end_of(std::size_t rank) {
    const contract::Deadline deadline("the end of a process");
    while (!reports[rank].has_ended) std::this_thread::sleep_for(100us);
    return reports[rank];
  }

  SleepingForks maker;
  std::vector<Looping, contract::Shared<Looping>> reports;
  std::vector<::pid_t> children;
};

}  // namespace

TEMPLATE_TEST_CASE("SharedMemoryGroup keeps the contract of a collective between threads", "",
                   Sleeping, Spinning, Tree) {
  contract::check_collective<TestType>();
}

TEMPLATE_TEST_CASE("SharedMemoryGroup keeps the contract of a collective between processes", "",
                   SleepingForks, SpinningTreeForks) {
  contract::check_collective<TestType>();
}

TEST_CASE("data of several chunks is exchanged correctly") {
  for (const std::size_t size : {1u, 2u, 3u, 8u}) check_large<float, Sleeping>(size);
  check_large<std::int8_t, Spinning>(2);
  check_large<std::int8_t, Tree>(3);
  check_large<double, Tree>(5);
  check_large<float, SleepingForks>(3);
}

TEST_CASE("a killed process is named after the timeout by one of the others, which all end") {
  for (const std::size_t victim : {0u, 1u, 2u}) {
    LoopingProcesses processes(3, 300ms, 20'000);
    REQUIRE(::kill(processes.children[victim], SIGKILL) == 0);
    std::size_t named = 0;
    for (std::size_t r = 0; r < 3; ++r) {
      if (r == victim) continue;
      const auto& error = processes.end_of(r).error;
      INFO(error.text);
      using Type = contract::ReportedError::Type;
      REQUIRE((error.type == Type::timed_out || error.type == Type::aborted));
      const std::string text = error.text;
      const std::string name = std::to_string(victim);
      if (error.type == Type::timed_out)
        named += text.find("for replica " + name + ", which") != std::string::npos;
      else
        CHECK(text.ends_with("stopped because a replica did not arrive in time (" + name + ")"));
    }
    CHECK(named == 1);
  }
}

TEST_CASE("an abort in any process ends the waits for a killed or frozen one immediately") {
  for (const int signal : {SIGKILL, SIGSTOP})
    for (int round = 0; round < 10; ++round) {
      LoopingProcesses processes(4, contract::no_timeout, round % 2 == 0 ? 100 : 400'000);
      std::this_thread::sleep_for(std::chrono::microseconds(379 * round));
      REQUIRE(::kill(processes.children[2], signal) == 0);
      std::this_thread::sleep_for(10ms);
      const auto aborted = contract::Clock::now();
      processes.maker.member(1).abort();
      for (const std::size_t r : {0u, 1u, 3u}) {
        const Looping& report = processes.end_of(r);
        CHECK(report.error.type == contract::ReportedError::Type::aborted);
        CHECK(report.at - aborted < 3s);
      }
      ::kill(processes.children[2], SIGCONT);
      if (signal == SIGSTOP)
        CHECK(processes.end_of(2).error.type == contract::ReportedError::Type::aborted);
    }
}

TEST_CASE("time in which a waiting process was suspended does not count towards its timeout") {
  LoopingProcesses processes(2, 1s, 100);
  REQUIRE(::kill(processes.children[1], SIGSTOP) == 0);
  std::this_thread::sleep_for(50ms);  // now rank 0 waits for rank 1
  REQUIRE(::kill(processes.children[0], SIGSTOP) == 0);
  std::this_thread::sleep_for(1300ms);
  const int before = processes.reports[0].rounds;
  REQUIRE(::kill(processes.children[0], SIGCONT) == 0);
  std::this_thread::sleep_for(100ms);
  REQUIRE(::kill(processes.children[1], SIGCONT) == 0);
  processes.go_on_after(before);
  for (const Looping& report : processes.reports) CHECK_FALSE(report.has_ended);
}

TEST_CASE("the shared memory group's timeout names the operation and all missing members") {
  Sleeping maker(4, 20ms);
  const auto errors =
      run_members(maker, "timeout", [](auto& member, std::size_t) { member.barrier(); }, {0, 1, 3});
  CHECK(contract::text_of(errors[2]) ==
        "barrier: replica 2 waited 20 ms for replica 0, 1, 3, which did not arrive; it hangs, or "
        "it needs a longer timeout");
}

TEST_CASE("a member that stops within an operation is distinguished from one that is absent") {
  const auto memory = SharedMemory::create(memory_for(2));
  lockstep::detail::SharedChannel stops(memory, 0, {.rank = 0, .size = 2, .timeout = 50ms},
                                        SumOrder::ranks);
  SharedMemoryGroup goes_on(memory, {.rank = 1, .size = 2, .timeout = 50ms});
  std::vector<float> x(several_chunks<float>(2));
  std::thread other([&] {
    constexpr std::uint64_t floats = 1;
    stops.publish({lockstep::detail::SharedCall::Operation::all_reduce, x.size(), 0, 0,
                   sizeof(float), floats});
    stops.begin();
  });
  std::string text;
  try {
    goes_on.all_reduce(x.data(), x.size());
  } catch (const lockstep::CollectiveTimeout& e) {
    text = e.what();
    CHECK(e.peer() == 0);
  }
  other.join();
  CHECK(text ==
        "all_reduce: replica 1 waited 50 ms for replica 0, which arrived and then stopped; it "
        "hangs, or it needs a longer timeout");
}

TEST_CASE("mismatched calls of processes are reported with both replicas, operations and sizes") {
  SleepingForks maker(2, contract::no_timeout);
  const auto errors = run_members(maker, "disagreement", [](auto& member, std::size_t rank) {
    double x[3] = {};
    if (rank == 0)
      member.broadcast(x, 3, 0);
    else
      member.all_reduce(reinterpret_cast<std::int64_t*>(x), 2);
  });
  const std::string end = "; all replicas must make the same calls in the same order";
  CHECK(contract::text_of(errors[0]) ==
        "shared memory group: replica 1 calls all_reduce of 2 elements of int64, replica 0 calls "
        "broadcast of 3 elements of float64" +
            end);
  CHECK(contract::text_of(errors[1]) ==
        "shared memory group: replica 0 calls broadcast of 3 elements of float64, replica 1 calls "
        "all_reduce of 2 elements of int64" +
            end);
}

TEST_CASE("an invalid rank or size is refused") {
  const auto memory = SharedMemory::create(memory_for(2));
  for (const auto& [rank, size] : {std::pair{0u, 0u}, {2u, 2u}, {0u, 257u}})
    CHECK_THROWS_AS(SharedMemoryGroup(memory, {.rank = rank, .size = size}), lockstep::UsageError);
}

TEST_CASE("groups on two channels of a memory do not interfere") {
  const auto memory = SharedMemory::create(memory_for(3, 2));
  std::vector<SharedMemoryGroup> layers, gradients;
  for (std::size_t r = 0; r < 3; ++r) {
    layers.emplace_back(memory, SharedMemoryGroup::Options{.rank = r, .size = 3, .channel = 0});
    gradients.emplace_back(memory, SharedMemoryGroup::Options{.rank = r, .size = 3, .channel = 1});
  }
  struct {
    std::vector<SharedMemoryGroup>& members;
    std::size_t size() const { return members.size(); }
    SharedMemoryGroup& member(std::size_t r) { return members[r]; }
  } maker{layers};
  gradients[1].abort();
  CHECK(contract::first_error(run_members(maker, "two groups", [&](auto& member, std::size_t r) {
          contract::check_sum<float>(member, SumOrder::ranks, 1, 400'000);
          bool aborted = false;
          try {
            gradients[r].barrier();
          } catch (const lockstep::CollectiveAborted& e) {
            aborted = e.peer() == 1;
          }
          contract::expect(aborted, "the aborted group went on");
          contract::check_sum<float>(member, SumOrder::ranks, 2, 400'000);
        })) == "");
}
