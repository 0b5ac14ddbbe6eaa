#include "lockstep/collectives/shared_memory/shared_memory_group.hpp"

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
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/collectives/shared_memory/shared_channel.hpp"
#include "lockstep/collectives/shared_memory/shared_memory.hpp"
#include "lockstep/collectives/thread_group.hpp"
#include "unit/collectives/contract.hpp"
#include "unit/collectives/heap_member.hpp"

namespace {

using namespace std::chrono_literals;
using contract::HeapMember;
using contract::run_members;
using contract::Where;
using lockstep::SharedMemory;
using lockstep::SharedMemoryGroup;
using lockstep::SumOrder;

SharedMemory::Options memory_for(std::size_t size, std::size_t channels = 1) {
  return {.bytes = SharedMemoryGroup::bytes(size, channels),
          .heap = SharedMemoryGroup::heap_bytes(size, channels),
          .run = "a test",
          .name = "memory",
          .key = "a key"};
}

/// The members of a group that this process has made. A forked child starts without any, since it
/// does not inherit the memory of its parent's.
template <class T>
class Made {
 public:
  explicit Made(std::size_t size) : all_(new std::vector<std::optional<T>>(size)) {}
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  ~Made() { delete all_; }
  std::size_t size() const { return all_->size(); }
  template <class Make>
  T& get(std::size_t rank, const Make& make) {
    if (process_ != ::getpid()) {
      all_ = new std::vector<std::optional<T>>(all_->size());
      process_ = ::getpid();
    }
    auto& member = (*all_)[rank];
    if (!member) member.emplace(make());
    return *member;
  }

 private:
  std::vector<std::optional<T>>* all_;
  ::pid_t process_ = ::getpid();
};

/// The members are threads that share one mapping, so that the thread sanitizer sees all accesses.
template <SumOrder sum_order, int spins>
class Threads {
 public:
  static constexpr std::size_t max_size = 8;
  static constexpr SumOrder order = sum_order;
  static constexpr bool can_end = true;

  Threads(std::size_t size, std::chrono::milliseconds timeout)
      : memory_(SharedMemory::create(memory_for(size))) {
    for (std::size_t r = 0; r < size; ++r)
      members_.emplace_back(
          memory_, r, size,
          lockstep::GroupOptions{.timeout = timeout, .order = order, .spins = spins});
  }
  std::size_t size() const { return members_.size(); }
  SharedMemoryGroup& member(std::size_t rank) { return members_[rank]; }
  SharedMemory& memory() { return *memory_; }

 private:
  std::shared_ptr<SharedMemory> memory_;
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
    return members_.get(rank, [&] {
      return SharedMemoryGroup(
          ::getpid() == creator_ ? memory_ : SharedMemory::open(place_, memory_for(size())), rank,
          size(), {.timeout = timeout_, .order = order, .spins = spins});
    });
  }

 private:
  std::chrono::milliseconds timeout_;
  std::shared_ptr<SharedMemory> memory_;
  std::string place_ = memory_->place();
  ::pid_t creator_ = ::getpid();
  Made<SharedMemoryGroup> members_;
};
using SleepingForks = Forks<SumOrder::ranks, 0>;
using SpinningTreeForks = Forks<SumOrder::tree, 1000>;

/// `Base`, a group of threads or processes, with numbers in the heap.
template <class Base, Where where>
class HeapOf : public Base {
 public:
  HeapOf(std::size_t size, std::chrono::milliseconds timeout)
      : Base(size, timeout), members_(size) {
    if constexpr (!requires { Base::in_processes; })
      for (std::size_t r = 0; r < size; ++r) member(r);
  }
  HeapMember<SharedMemoryGroup>& member(std::size_t rank) {
    return members_.get(rank, [&] { return HeapMember(Base::member(rank), where); });
  }

 private:
  Made<HeapMember<SharedMemoryGroup>> members_;
};
using InPlace = HeapOf<Sleeping, Where::all>;
using InPlaceTree = HeapOf<Tree, Where::all>;
using Mixed = HeapOf<Spinning, Where::some>;
using InPlaceForks = HeapOf<SpinningTreeForks, Where::all>;
using ChangingForks = HeapOf<SleepingForks, Where::changing>;

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
                   Sleeping, Spinning, Tree, InPlace, InPlaceTree, Mixed) {
  contract::check_collective<TestType>();
}

TEMPLATE_TEST_CASE("SharedMemoryGroup keeps the contract of a collective between processes", "",
                   SleepingForks, SpinningTreeForks, InPlaceForks, ChangingForks) {
  contract::check_collective<TestType>();
}

TEST_CASE("data of several chunks is exchanged correctly") {
  for (const std::size_t size : {1u, 2u, 3u, 8u}) check_large<float, Sleeping>(size);
  check_large<std::int8_t, Spinning>(2);
  check_large<std::int8_t, Tree>(3);
  check_large<double, Tree>(5);
  check_large<float, SleepingForks>(3);
  check_large<float, InPlace>(3);
  check_large<std::int8_t, Mixed>(5);
  check_large<double, ChangingForks>(2);
}

TEST_CASE("rounded sums have the bits of a ThreadGroup, for any size and wherever they lie") {
  const auto chunk = [](std::size_t size) {
    return lockstep::detail::SharedChannel::chunk_of(size) / sizeof(float);
  };
  for (const std::size_t size : {2u, 3u, 5u, 8u})
    for (const SumOrder order : {SumOrder::ranks, SumOrder::tree}) {
      lockstep::ThreadGroup threads({.size = size, .order = order});
      const auto memory = SharedMemory::create(memory_for(size));
      std::vector<SharedMemoryGroup> groups;
      for (std::size_t r = 0; r < size; ++r)
        groups.emplace_back(memory, r, size, lockstep::GroupOptions{.order = order});
      struct {
        std::vector<SharedMemoryGroup>& groups;
        std::size_t size() const { return groups.size(); }
        SharedMemoryGroup& member(std::size_t r) { return groups[r]; }
      } maker{groups};
      INFO(size << " members, " << (order == SumOrder::tree ? "tree" : "ranks"));
      CHECK(contract::first_error(run_members(maker, "bits", [&](auto& group, std::size_t r) {
              lockstep::ThreadGroup::Member expected(threads, r);
              std::uint64_t set = 0;
              for (const std::size_t n :
                   {std::size_t{4097}, chunk(size) + 1, 2 * chunk(size) + 333})
                for (const std::size_t m : {1u, 511u, 513u, 2047u}) {
                  contract::Numbers<float> x(set, n, r), y(set, n, r);
                  contract::Numbers<double> a(set + 1, m, r), b(set + 1, m, r);
                  expected.all_reduce(x.data(), n, a.data(), m);
                  if (set % 3 == 0)
                    group.all_reduce(y.data(), n, b.data(), m);
                  else
                    HeapMember(group, set % 3 == 1 ? Where::all : Where::some)
                        .all_reduce(y.data(), n, b.data(), m);
                  ++set;
                  contract::expect(std::memcmp(x.data(), y.data(), n * sizeof(float)) == 0 &&
                                       std::memcmp(a.data(), b.data(), m * sizeof(double)) == 0 &&
                                       y.guards_intact() && b.guards_intact(),
                                   "not the bits of the group of threads");
                }
            })) == "");
    }
}

TEST_CASE("a group of 64 members sums in place and copied") {
  for (const Where where : {Where::all, Where::some}) {
    constexpr std::size_t size = 64;
    Sleeping maker(size, contract::no_timeout);
    CHECK(contract::first_error(run_members(maker, "64 members", [&](auto& group, std::size_t) {
            HeapMember member(group, where);
            contract::check_sum<float>(member, SumOrder::ranks, 1, 5001);
            contract::check_sum_with_sums<float>(member, SumOrder::ranks, 2, 20'001, 3);
            contract::check_gather<std::int16_t>(member, 3, 101);
          })) == "");
  }
}

TEST_CASE("an all-reduce in the heap is in place: the sum appears in one pass, not in the slots") {
  constexpr std::size_t n = 100'000;
  Sleeping maker(2, contract::no_timeout);
  auto* const slots = reinterpret_cast<const float*>(maker.memory().data());
  CHECK(contract::first_error(run_members(maker, "in place", [&](auto& group, std::size_t) {
          auto* const x =
              reinterpret_cast<float*>(group.exchange_allocator()->allocate(n * sizeof(float)));
          std::fill_n(x, n, 1.5f);
          group.all_reduce(x, n);
          contract::expect(std::count(x, x + n, 3.0f) == n, "not the sum");
        })) == "");
  const std::size_t count = maker.memory().bytes() / sizeof(float);
  CHECK(std::count(slots, slots + count, 1.5f) == 0);
  CHECK(std::count(slots, slots + count, 3.0f) == 0);
}

TEST_CASE("ranges in the heap are added and gathered in place, without the slots") {
  constexpr std::size_t n = 100'000;
  Sleeping maker(2, contract::no_timeout);
  auto* const slots = reinterpret_cast<const float*>(maker.memory().data());
  CHECK(contract::first_error(run_members(maker, "in place", [&](auto& group, std::size_t rank) {
          auto* const x =
              reinterpret_cast<float*>(group.exchange_allocator()->allocate(n * sizeof(float)));
          std::fill_n(x, n, 1.5f);
          const std::vector<lockstep::Slice> halves{{0, n / 2}, {n / 2, n / 2}};
          group.reduce_scatter(x, std::span<const lockstep::Slice>(halves));
          std::fill_n(x + halves[1 - rank].first, n / 2, 0.0f);
          group.all_gather(x, std::span<const lockstep::Slice>(halves));
          contract::expect(std::count(x, x + n, 3.0f) == n, "not the sums of all ranges");
        })) == "");
  const std::size_t count = maker.memory().bytes() / sizeof(float);
  CHECK(std::count(slots, slots + count, 1.5f) == 0);
  CHECK(std::count(slots, slots + count, 3.0f) == 0);
}

TEST_CASE("after an error no process changes the heap of one that has left") {
  constexpr std::size_t n = 400'000;
  struct Report {
    std::atomic<int> rounds{0};
    std::atomic<bool> has_ended{false}, is_wrong{false}, may_end{false};
  };
  for (int round = 0; round < 12; ++round) {
    SleepingForks maker(2, contract::no_timeout);
    std::vector<Report, contract::Shared<Report>> reports(2);
    std::vector<::pid_t> children;
    for (std::size_t r = 0; r < 2; ++r) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      ::alarm(60);
      auto& group = maker.member(r);
      auto* const x = reinterpret_cast<std::uint32_t*>(group.exchange_allocator()->allocate(4 * n));
      std::fill_n(x, n, 1u);
      try {
        while (true) {
          group.all_reduce(x, n);
          ++reports[r].rounds;
        }
      } catch (const lockstep::CollectiveAborted&) {
      }
      std::vector<std::uint32_t> left(x, x + n);
      reports[r].has_ended = true;
      while (!reports[r].may_end) std::this_thread::sleep_for(1ms);
      reports[r].is_wrong = !std::equal(left.begin(), left.end(), x);
      std::fill_n(x, n, 7u);
      ::_exit(0);
    }
    const contract::Deadline deadline("two processes that exchange in place");
    const auto wait = [&](auto done) {
      while (!done()) std::this_thread::sleep_for(100us);
    };
    wait([&] { return reports[0].rounds > 3 && reports[1].rounds > 3; });
    std::this_thread::sleep_for(std::chrono::microseconds(137 * round));
    REQUIRE(::kill(children[1], SIGSTOP) == 0);
    maker.member(0).abort();
    wait([&] { return reports[0].has_ended.load(); });
    REQUIRE(::kill(children[1], SIGCONT) == 0);  // it may still write its part
    wait([&] { return reports[1].has_ended.load(); });
    for (std::size_t r = 0; r < 2; ++r) {
      reports[r].may_end = true;
      int status = -1;
      CHECK(::waitpid(children[r], &status, 0) == children[r]);
      CHECK(status == 0);
      CHECK_FALSE(reports[r].is_wrong);
    }
  }
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
  SharedMemoryGroup goes_on(memory, 1, 2, {.timeout = 50ms});
  std::vector<float> x(several_chunks<float>(2));
  std::thread other([&] {
    using Call = lockstep::detail::CollectiveCall;
    stops.publish(Call::of<float>(Call::Operation::all_reduce, x.size()));
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
  CHECK(
      contract::text_of(errors[0]) ==
      "replica 1 calls all_reduce of 2 elements of int64, replica 0 calls broadcast of 3 elements "
      "of float64 from replica 0" +
          end);
  CHECK(contract::text_of(errors[1]) ==
        "replica 0 calls broadcast of 3 elements of float64 from replica 0, replica 1 calls "
        "all_reduce of 2 elements of int64" +
            end);
}

TEST_CASE("an invalid rank or size is refused") {
  const auto memory = SharedMemory::create(memory_for(2));
  for (const auto& [rank, size] : {std::pair{0u, 0u}, {2u, 2u}, {0u, 257u}})
    CHECK_THROWS_AS(SharedMemoryGroup(memory, rank, size), lockstep::UsageError);
}

TEST_CASE("a channel or size that the memory was not made for is refused") {
  const auto memory = SharedMemory::create(memory_for(2, 3));
  CHECK_NOTHROW(SharedMemoryGroup(memory, 1, 2, {.channel = 2}));
  for (const auto& [size, channel] : {std::pair{2u, 3u}, {3u, 2u}, {8u, 1u}, {2u, ~0u}})
    CHECK_THROWS_AS(SharedMemoryGroup(memory, 0, size, {.channel = channel}), lockstep::UsageError);
}

TEST_CASE("groups on two channels of a memory do not interfere") {
  const auto memory = SharedMemory::create(memory_for(3, 2));
  std::vector<SharedMemoryGroup> layers, gradients;
  for (std::size_t r = 0; r < 3; ++r) {
    layers.emplace_back(memory, r, 3, lockstep::GroupOptions{.channel = 0});
    gradients.emplace_back(memory, r, 3, lockstep::GroupOptions{.channel = 1});
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
