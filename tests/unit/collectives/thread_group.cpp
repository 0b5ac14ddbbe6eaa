#include "lockstep/collectives/thread_group.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "contract.hpp"

namespace {

using namespace std::chrono_literals;
using contract::run_members;
using lockstep::SumOrder;
using lockstep::ThreadGroup;

template <SumOrder sum_order, int spins>
class Threads {
 public:
  static constexpr std::size_t max_size = 8;
  static constexpr SumOrder order = sum_order;
  static constexpr bool can_end = true;

  Threads(std::size_t size, std::chrono::milliseconds timeout)
      : group({.size = size, .timeout = timeout, .order = sum_order, .spins = spins}) {
    for (std::size_t r = 0; r < size; ++r) members_.emplace_back(group, r);
  }
  std::size_t size() const { return group.size(); }
  ThreadGroup::Member& member(std::size_t rank) { return members_[rank]; }

  ThreadGroup group;

 private:
  std::deque<ThreadGroup::Member> members_;
};
using Sleeping = Threads<SumOrder::ranks, 0>;
using Spinning = Threads<SumOrder::ranks, 1000>;
using Tree = Threads<SumOrder::tree, 0>;

}  // namespace

TEMPLATE_TEST_CASE("ThreadGroup keeps the contract of a collective", "", Sleeping, Spinning, Tree) {
  contract::check_collective<TestType>();
}

TEST_CASE("the values of the contract distinguish the orders of addition") {
  for (std::size_t members = 3; members <= 8; ++members) {
    std::size_t reversed = 0, tree = 0;
    for (std::size_t i = 0; i < 1000; ++i) {
      const auto at = [&](std::size_t r) {
        return contract::value<float>(contract::key_of(1, r), i);
      };
      const auto back = [&](std::size_t r) { return at(members - 1 - r); };
      const float sum = contract::sum_of<float>(SumOrder::ranks, 0, members, at);
      reversed += sum != contract::sum_of<float>(SumOrder::ranks, 0, members, back);
      tree += sum != contract::sum_of<float>(SumOrder::tree, 0, members, at);
    }
    INFO(members << " members");
    CHECK(reversed > 100);
    CHECK((members == 3 || tree > 100));  // for three members, the tree is the order of ranks
  }
}

TEST_CASE("a group has 1 to 256 members, and a member's rank is below its size") {
  CHECK_THROWS_AS(ThreadGroup({.size = 0}), lockstep::UsageError);
  CHECK_THROWS_AS(ThreadGroup({.size = 257}), lockstep::UsageError);
  ThreadGroup group({.size = 256});
  CHECK(ThreadGroup::Member(group, 255).rank() == 255);
  CHECK_THROWS_AS(ThreadGroup::Member(group, 256), lockstep::UsageError);
}

TEST_CASE("reset makes a group usable again, whatever ended it") {
  for (const std::size_t size : {std::size_t{1}, std::size_t{2}, std::size_t{5}}) {
    Spinning maker(size, 500ms);  // generous, for a loaded machine
    for (int round = 0; round < 8; ++round) {
      INFO(size << " members, round " << round);
      const auto errors = run_members(maker, "ending a group", [&](auto& member, std::size_t rank) {
        float x[3] = {1, 2, 3};
        if (round % 4 == 1 && rank + 1 == size) return;  // the others time out
        if (round % 4 == 2 && rank == 0) return member.abort();
        if (round % 4 == 3) return member.all_reduce(x, 2 + (rank == 0));
        contract::check_sum<float>(member, SumOrder::ranks, 9, 100);
      });
      if (round % 4 == 0) CHECK(contract::first_error(errors) == "");
      if (round % 4 != 0 && size > 1) CHECK(contract::first_error(errors) != "");
      maker.group.abort();
      maker.group.reset();
      contract::Counts came(size);
      CHECK(contract::first_error(run_members(maker, "after reset", [&](auto& member, std::size_t) {
              for (std::uint64_t i = 0; i < 5; ++i)
                contract::random_sequence(member, SumOrder::ranks, i, came);
            })) == "");
    }
  }
}

TEST_CASE("an abort of the group or of any member reaches all members") {
  Sleeping maker(4, contract::no_timeout);
  for (int from = 0; from < 5; ++from) {
    std::thread aborting([&] {
      std::this_thread::sleep_for(5ms);
      if (from == 4) return maker.group.abort();
      maker.member(static_cast<std::size_t>(from)).abort();
    });
    const auto errors =
        run_members(maker, "one abort", [](auto& member, std::size_t) { member.barrier(); }, {3});
    aborting.join();
    for (std::size_t r = 0; r < 3; ++r) CHECK(contract::is<lockstep::CollectiveAborted>(errors[r]));
    maker.group.reset();
  }
}

TEST_CASE("exactly one member reports the timeout, the others that they were aborted") {
  for (int round = 0; round < 10; ++round) {
    Sleeping maker(5, 20ms);
    const auto errors =
        run_members(maker, "timeout", [](auto& member, std::size_t) { member.barrier(); }, {1, 3});
    int timeouts = 0;
    for (const std::size_t r : {0u, 2u, 4u}) {
      if (contract::is<lockstep::CollectiveTimeout>(errors[r]))
        ++timeouts;
      else
        CHECK(contract::is<lockstep::CollectiveAborted>(errors[r]));
    }
    CHECK(timeouts == 1);
  }
}

TEST_CASE("a timeout names the operation, the time and all members that did not arrive") {
  Sleeping maker(4, 20ms);
  const auto errors =
      run_members(maker, "timeout", [](auto& member, std::size_t) { member.barrier(); }, {0, 1, 3});
  CHECK(contract::is<lockstep::CollectiveTimeout>(errors[2]));
  CHECK(
      contract::text_of(errors[2]) ==
      "barrier: replica 2 waited 20 ms for replica 0, 1, 3, which did not arrive; it hangs, or it "
      "needs a longer timeout");
}

TEST_CASE("members that lag by one operation are distinguished from those that wait") {
  Sleeping maker(3, 40ms);
  const auto errors = run_members(maker, "out of step", [](auto& member, std::size_t rank) {
    member.barrier();
    if (rank != 1) return;
    member.barrier();
  });
  CHECK(contract::text_of(errors[1]).find("for replica 0, 2, which") != std::string::npos);
}

TEST_CASE("an aborted member names the operation that it was in") {
  Sleeping maker(2, contract::no_timeout);
  float x = 1;
  double sums = 1;
  maker.member(1).abort();
  auto& member = maker.member(0);
  const auto names = [](const char* operation) {
    return std::string(operation) + ": replica 0 stopped because another replica failed";
  };
  const auto text_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const lockstep::CollectiveAborted& e) {
      return e.what();
    }
    return "";
  };
  CHECK(text_of([&] { member.broadcast(&x, 1, 1); }) == names("broadcast"));
  CHECK(text_of([&] { member.all_reduce(&x, 1, &sums, 1); }) == names("all_reduce"));
  CHECK(text_of([&] { member.all_gather(&x, 0, &x); }) == names("all_gather"));
  CHECK(text_of([&] { member.barrier(); }) == names("barrier"));
}

TEST_CASE("mismatched calls are reported with both replicas, operations and sizes") {
  Sleeping maker(2, contract::no_timeout);
  const auto errors = run_members(maker, "disagreement", [](auto& member, std::size_t rank) {
    double x[3] = {};
    if (rank == 0)
      member.broadcast(x, 3, 0);
    else
      member.all_reduce(x, 2);
  });
  const std::string end = "; all replicas must make the same calls in the same order";
  CHECK(contract::text_of(errors[0]) ==
        "replica 1 calls all_reduce of 2 elements of float64, replica 0 calls broadcast of 3 "
        "elements of float64 from replica 0" +
            end);
  CHECK(contract::text_of(errors[1]) ==
        "replica 0 calls broadcast of 3 elements of float64 from replica 0, replica 1 calls "
        "all_reduce of 2 elements of float64" +
            end);
}

TEST_CASE("element types that differ but have the same size are reported") {
  Sleeping maker(2, contract::no_timeout);
  const auto errors = run_members(maker, "types", [](auto& member, std::size_t rank) {
    float x[3] = {};
    std::int32_t y[3] = {};
    rank == 0 ? member.all_reduce(x, 3) : member.all_reduce(y, 3);
  });
  CHECK(contract::text_of(errors[0]).find("int32, replica 0 calls all_reduce of 3 elements of "
                                          "float32") != std::string::npos);
  CHECK(errors[1]);
}

TEST_CASE("an invalid root in one member's call ends the others' waits") {
  Sleeping maker(3, contract::no_timeout);
  const auto errors = run_members(maker, "a wrong root", [](auto& member, std::size_t rank) {
    float x = 0;
    member.broadcast(&x, 1, rank == 1 ? 3 : 0);
  });
  CHECK(contract::is<lockstep::UsageError>(errors[1]));
  for (const std::size_t r : {0u, 2u}) CHECK(contract::is<lockstep::CollectiveAborted>(errors[r]));
}

TEST_CASE("a barrier makes earlier writes visible to all members") {
  Spinning maker(4, contract::no_timeout);
  std::vector<int> plain(4, 0);  // not atomic, so that the thread sanitizer checks the barrier
  CHECK(contract::first_error(run_members(maker, "visible", [&](auto& member, std::size_t rank) {
          for (int i = 1; i <= 200; ++i) {
            plain[rank] = i;
            member.barrier();
            for (const int other : plain) contract::expect(other == i, "an old number");
            member.barrier();
          }
        })) == "");
}

TEST_CASE("two groups of the same threads do not interfere") {
  Sleeping layers(3, contract::no_timeout), gradients(3, contract::no_timeout);
  gradients.group.abort();
  CHECK(contract::first_error(run_members(layers, "two groups", [&](auto& member, std::size_t r) {
          contract::check_sum<float>(member, SumOrder::ranks, 1, 50);
          bool aborted = false;
          try {
            gradients.member(r).barrier();
          } catch (const lockstep::CollectiveAborted&) {
            aborted = true;
          }
          contract::expect(aborted, "the aborted group went on");
          contract::check_sum<float>(member, SumOrder::ranks, 2, 50);
        })) == "");
}

TEST_CASE("the longest representable timeout does not end immediately") {
  ThreadGroup group({.size = 2, .timeout = std::chrono::nanoseconds::max()});
  const contract::Deadline deadline("the longest timeout");
  std::thread late([&] {
    std::this_thread::sleep_for(20ms);
    ThreadGroup::Member(group, 1).barrier();
  });
  CHECK_NOTHROW(ThreadGroup::Member(group, 0).barrier());
  late.join();
}

TEST_CASE("an abort that races with the last member ends the operation for all or for none") {
  Sleeping maker(2, contract::no_timeout);
  constexpr int rounds = 2'000;
  std::atomic<int> round = 0, ready = 0;
  std::array<std::vector<char>, 2> stopped{std::vector<char>(rounds), std::vector<char>(rounds)};
  const auto wait = [](std::mt19937_64& pace) {
    const auto end = contract::Clock::now() + std::chrono::nanoseconds(pace() % 15'000);
    while (contract::Clock::now() < end) {
    }
  };
  const auto begin = [&](int r, std::mt19937_64& pace) {
    ++ready;
    while (round < r) std::this_thread::yield();
    wait(pace);
  };
  std::thread aborting([&] {
    std::mt19937_64 pace(7);
    for (int r = 1; r <= rounds; ++r) {
      while (ready < 2) std::this_thread::yield();
      maker.group.reset();  // both are between two operations
      ready = 0;
      round = r;
      wait(pace);
      maker.group.abort();
    }
  });
  CHECK(contract::first_error(
            run_members(maker, "abort and arrival", [&](auto& member, std::size_t rank) {
              std::mt19937_64 pace(rank);
              for (int r = 1; r <= rounds; ++r) {
                begin(r, pace);
                try {
                  member.barrier();
                } catch (const lockstep::CollectiveAborted&) {
                  stopped[rank][static_cast<std::size_t>(r - 1)] = 1;
                }
              }
            })) == "");
  aborting.join();
  CHECK(stopped[0] == stopped[1]);
}

TEST_CASE("a timeout after a reset names the members missing now, not those before") {
  Sleeping maker(2, 20ms);
  for (const std::size_t absent : {1u, 0u, 1u}) {
    const auto errors = run_members(maker, "timeout",
                                    [](auto& member, std::size_t) { member.barrier(); }, {absent});
    CHECK(
        contract::text_of(errors[1 - absent]).find("for replica " + std::to_string(absent) + ",") !=
        std::string::npos);
    maker.group.reset();
  }
}

TEST_CASE("time in which the process was suspended does not count towards the timeout") {
  int gate[2];
  REQUIRE(::pipe(gate) == 0);
  const ::pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(60);
    Sleeping threads(2, 1s);
    std::thread late([&] {
      char go = 0;
      if (::read(gate[0], &go, 1) != 1) ::_exit(2);
      threads.member(1).barrier();
    });
    try {
      threads.member(0).barrier();
    } catch (const lockstep::CollectiveTimeout&) {
      ::_exit(1);
    }
    late.join();
    ::_exit(0);
  }
  std::this_thread::sleep_for(100ms);  // member 0 waits
  REQUIRE(::kill(child, SIGSTOP) == 0);
  std::this_thread::sleep_for(1300ms);  // longer than the timeout
  REQUIRE(::kill(child, SIGCONT) == 0);
  std::this_thread::sleep_for(100ms);
  REQUIRE(::write(gate[1], "g", 1) == 1);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  ::close(gate[0]);
  ::close(gate[1]);
}
