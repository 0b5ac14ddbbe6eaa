#include "lockstep/collectives/shared_memory/shared_barrier.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "unit/collectives/members.hpp"

namespace {

using namespace std::chrono_literals;
using lockstep::ExchangeProgress;
using lockstep::detail::BarrierState;
using lockstep::detail::SharedBarrier;
using lockstep::detail::Shutdown;
using Result = SharedBarrier::Result;

struct Member : SharedBarrier {
  using SharedBarrier::SharedBarrier;
  void abort() { end(Shutdown::Cause::aborted, rank()); }
};

/// The members of a barrier, in threads of this process.
class Barriers {
 public:
  explicit Barriers(std::size_t size, std::chrono::milliseconds timeout = 60s, int spins = 0)
      : state_(std::make_unique<BarrierState>()) {
    for (std::size_t r = 0; r < size; ++r)
      members_.push_back(std::make_unique<Member>(
          *state_,
          SharedBarrier::Options{.rank = r, .size = size, .timeout = timeout, .spins = spins}));
  }
  std::size_t size() const { return members_.size(); }
  Member& member(std::size_t rank) { return *members_[rank]; }
  BarrierState& state() { return *state_; }

 private:
  std::unique_ptr<BarrierState> state_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace

TEST_CASE("a shared barrier passes more often than its phase has values") {
  constexpr std::uint64_t rounds = 35'000;
  for (const int spins : {0, 2000}) {
    Barriers barriers(2, 60s, spins);
    std::array<std::uint64_t, 2> plain{};  // not atomic, so that the thread sanitizer checks it
    CHECK(contract::first_error(
              contract::run_members(barriers, "many rounds", [&](Member& member, std::size_t rank) {
                for (std::uint64_t i = 1; i <= rounds; ++i) {
                  plain[rank] = i;
                  contract::expect(member.wait() == Result::passed, "the barrier ended");
                  contract::expect(plain[1 - rank] == i, "an old number");
                  contract::expect(member.wait() == Result::passed, "the barrier ended");
                }
              })) == "");
    CHECK(barriers.member(0).passed() == 2 * rounds);
    CHECK(barriers.member(1).passed() == 2 * rounds);
  }
}

TEST_CASE("the first cause of an end is the one that all members see") {
  Barriers barriers(3);
  barriers.member(1).end(Shutdown::Cause::mismatch, 2);
  barriers.member(0).end(Shutdown::Cause::aborted, 0);
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(barriers.member(r).wait() == Result::ended);
    CHECK(barriers.member(r).end().cause == Shutdown::Cause::mismatch);
    CHECK(barriers.member(r).end().rank == 2);
  }
}

TEST_CASE("a rank of 255 is kept in the cause") {
  Barriers barriers(256);
  barriers.member(0).end(Shutdown::Cause::aborted, 255);
  CHECK(barriers.member(3).end().rank == 255);
}

TEST_CASE("one member reports the timeout, and the end names the first that is missing") {
  Barriers barriers(4, 30ms);
  std::array<Result, 4> results{};
  contract::run_members(barriers, "timeout",
                        [&](Member& member, std::size_t rank) { results[rank] = member.wait(); },
                        {1, 3});
  CHECK(((results[0] == Result::timed_out) != (results[2] == Result::timed_out)));
  CHECK((results[0] == Result::ended || results[2] == Result::ended));
  CHECK(barriers.member(0).end().cause == Shutdown::Cause::timed_out);
  CHECK(barriers.member(0).end().rank == 1);
  CHECK(barriers.member(0).missing() == std::vector<std::size_t>{1, 3});
}

TEST_CASE("progress counts the barriers passed, and names the member waited for") {
  Barriers barriers(3);
  CHECK(barriers.member(0).progress() == ExchangeProgress{});
  contract::run_members(barriers, "progress", [](Member& member, std::size_t) { member.wait(); });
  CHECK(barriers.member(2).progress() == ExchangeProgress{1, {}});
  std::thread waits([&] { barriers.member(0).wait(); });
  std::thread too([&] { barriers.member(1).wait(); });
  const contract::Deadline deadline("the wait");
  while (barriers.member(0).progress() != ExchangeProgress{1, 2} ||
         barriers.member(1).progress() != ExchangeProgress{1, 2})
    std::this_thread::sleep_for(1ms);
  CHECK(barriers.member(2).progress() == ExchangeProgress{1, {}});
  barriers.member(2).wait();
  waits.join();
  too.join();
  CHECK(barriers.member(0).progress() == ExchangeProgress{2, {}});
}

TEST_CASE("a barrier that races with an end is passed by all members or by none") {
  constexpr int rounds = 3000;
  std::size_t passed = 0, ended = 0;
  std::mt19937_64 pace(3);
  for (int round = 0; round < rounds; ++round) {
    Barriers barriers(2, 60s, round % 2 == 0 ? 100 : 0);
    const auto pause = [](std::uint64_t nanoseconds) {
      const auto end = contract::Clock::now() + std::chrono::nanoseconds(nanoseconds);
      while (contract::Clock::now() < end) {
      }
    };
    std::array<Result, 2> result{};
    const std::array<std::uint64_t, 2> delay{pace() % 100'000, pace() % 20'000};
    std::thread other([&] {
      pause(delay[0]);
      result[1] = barriers.member(1).wait();
    });
    std::thread ends([&] {
      pause(delay[1]);
      barriers.member(0).end(Shutdown::Cause::aborted, 0);
    });
    result[0] = barriers.member(0).wait();
    other.join();
    ends.join();
    REQUIRE(result[0] == result[1]);
    ++(result[0] == Result::passed ? passed : ended);
  }
  CHECK(passed > 0);
  CHECK(ended > 0);  // how many depends on the load
}
