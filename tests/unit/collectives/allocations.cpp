#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <vector>

#include "lockstep/collectives/exchange/communication_thread.hpp"
#include "lockstep/collectives/exchange/exchange_at_end.hpp"
#include "lockstep/collectives/shared_memory/shared_memory.hpp"
#include "lockstep/collectives/shared_memory/shared_memory_group.hpp"
#include "lockstep/collectives/thread_group.hpp"
#include "members.hpp"
#include "support/allocation_counter.hpp"

namespace {

using lockstep::SharedMemoryGroup;
using lockstep::SumOrder;
using lockstep::ThreadGroup;

struct Members {
  explicit Members(ThreadGroup& group) {
    for (std::size_t r = 0; r < group.size(); ++r) members.emplace_back(group, r);
  }
  std::size_t size() const { return members.size(); }
  ThreadGroup::Member& member(std::size_t rank) { return members[rank]; }
  std::vector<ThreadGroup::Member> members;
};

struct SharedMembers {
  explicit SharedMembers(std::size_t size) {
    const auto memory =
        lockstep::SharedMemory::create({.bytes = SharedMemoryGroup::bytes(size, 1)});
    for (std::size_t r = 0; r < size; ++r) members.emplace_back(memory, r, size);
  }
  std::size_t size() const { return members.size(); }
  SharedMemoryGroup& member(std::size_t rank) { return members[rank]; }
  std::vector<SharedMemoryGroup> members;
};

template <class M>
void check_allocations(M& members) {
  CHECK(contract::first_error(contract::run_members(
            members, "operations that take no memory", [&](auto& member, std::size_t) {
              std::vector<float> x(10'000, 1.0f), all(5 * x.size());
              double sums[3] = {};
              const testing::AllocationCounter counter;
              for (int i = 0; i < 5; ++i) {
                member.all_reduce(x.data(), x.size());
                member.all_reduce(x.data(), x.size(), sums, 3);
                member.broadcast(x.data(), x.size(), 1);
                member.all_gather(x.data(), x.size(), all.data());
                member.barrier();
              }
              contract::expect(counter.count() == 0, "an operation took memory");
            })) == "");
}

}  // namespace

TEST_CASE("an operation of a group of threads takes no memory") {
  for (const SumOrder order : {SumOrder::ranks, SumOrder::tree}) {
    ThreadGroup group({.size = 5, .order = order});
    Members members(group);
    check_allocations(members);
  }
}

TEST_CASE("an operation of a group in shared memory takes no memory") {
  SharedMembers members(5);
  check_allocations(members);
}

TEST_CASE("posting takes no memory, neither in the replica nor in its communication thread") {
  /// Records its thread's allocations at each exchange.
  struct Noting {
    std::array<std::size_t, 300>* taken;
    std::size_t* count;
    std::size_t rank() const { return 0; }
    std::size_t size() const { return 1; }
    void abort() {}
    void all_reduce(float*, std::size_t) { (*taken)[(*count)++] = testing::allocations; }
    void all_reduce(float*, std::size_t, double*, std::size_t) {}
  };
  std::array<std::size_t, 300> taken{};
  std::size_t count = 0;
  const contract::Deadline deadline("posting");
  lockstep::CommunicationThread<Noting, float> exchange(Noting{&taken, &count});
  float x = 0;
  const testing::AllocationCounter counter;
  for (int i = 0; i < 300; ++i) exchange.post(&x, 1);
  exchange.reset();  // all exchanges run in its thread
  exchange.finish(&x, 1, nullptr, 0);
  CHECK(counter.count() == 0);
  CHECK(count == 300);
  CHECK(taken.back() == taken.front());
}

TEST_CASE("an exchange at the end takes no memory") {
  struct Nothing {
    std::size_t rank() const { return 0; }
    std::size_t size() const { return 1; }
    void abort() {}
    void all_reduce(float*, std::size_t) {}
    void all_reduce(float*, std::size_t, double*, std::size_t) {}
  };
  lockstep::ExchangeAtEnd<Nothing, float> exchange(Nothing{});
  float x = 0;
  const testing::AllocationCounter counter;
  for (int i = 0; i < 300; ++i) exchange.post(&x, 1);
  exchange.finish(&x, 1, nullptr, 0);
  CHECK(counter.count() == 0);
}
