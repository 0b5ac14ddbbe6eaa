#include "lockstep/collectives/machine_group.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "contract.hpp"
#include "heap_member.hpp"
#include "lockstep/collectives/thread_group.hpp"
#include "machine_places.hpp"

namespace {

using namespace std::chrono_literals;
using contract::HeapMember;
using contract::run_members;
using contract::Where;
using lockstep::MachineGroup;
using lockstep::SharedMemory;
using lockstep::SumOrder;
using lockstep::detail::Topology;
using machine_test::Machines;
using Counts = std::vector<std::size_t>;

/// The two halves of a binary tree.
Counts halves(std::size_t n) { return n > 1 ? Counts{(n + 1) / 2, n / 2} : Counts{1}; }
/// Machines of different sizes, of which the middle one has no lane but the first.
Counts uneven(std::size_t n) {
  return n < 3 ? Counts(n, 1) : n < 6 ? Counts{n - 2, 1, 1} : Counts{2, n - 5, 2, 1};
}
/// Machines of two processes, and perhaps one of one.
Counts pairs(std::size_t n) {
  Counts counts(n / 2, 2);
  if (n % 2 == 1) counts.push_back(1);
  return counts;
}

using Halves = Machines<SumOrder::ranks, halves, Topology::direct, true>;
using Uneven = Machines<SumOrder::ranks, uneven, Topology::tree>;

/// Members with numbers in the heap.
template <class Base, Where where>
class InHeap : public Base {
 public:
  InHeap(std::size_t size, std::chrono::milliseconds timeout) : Base(size, timeout) {
    for (std::size_t r = 0; r < size; ++r) members_.emplace_back(Base::member(r), where);
  }
  HeapMember<MachineGroup>& member(std::size_t rank) { return members_[rank]; }
  MachineGroup& group(std::size_t rank) { return Base::member(rank); }

 private:
  std::vector<HeapMember<MachineGroup>> members_;
};
using TreeInPlace = InHeap<Machines<SumOrder::tree, halves>, Where::all>;
using SomeInPlace = InHeap<Machines<SumOrder::ranks, pairs>, Where::changing>;

}  // namespace

TEST_CASE("MachineGroup keeps the contract of a collective") {
  contract::check_collective<SomeInPlace>();
}

TEMPLATE_TEST_CASE("so does it with other layouts and connections", "[.slow]", Halves, Uneven,
                   TreeInPlace) {
  contract::check_collective<TestType>();
}

TEMPLATE_TEST_CASE("rounded sums have the bits of a ThreadGroup on any machines", "", Halves,
                   Uneven, TreeInPlace, SomeInPlace) {
  for (const std::size_t size : {1u, 2u, 3u, 5u, 6u, 8u}) {
    INFO(size << " members");
    lockstep::ThreadGroup threads({.size = size, .order = TestType::order});
    TestType maker(size, contract::no_timeout);
    CHECK(contract::first_error(run_members(maker, "bits", [&](auto& group, std::size_t r) {
            lockstep::ThreadGroup::Member expected(threads, r);
            std::uint64_t set = 0;
            for (const std::size_t n : {3u, 4097u, 300'001u})
              for (const std::size_t m : {0u, 3u, 2047u}) {
                contract::Numbers<float> x(set, n, r), y(set, n, r);
                contract::Numbers<double> a(set + 1, m, r), b(set + 1, m, r);
                expected.all_reduce(x.data(), n, a.data(), m);
                group.all_reduce(y.data(), n, b.data(), m);
                ++set;
                contract::expect(std::memcmp(x.data(), y.data(), n * sizeof(float)) == 0 &&
                                     std::memcmp(a.data(), b.data(), m * sizeof(double)) == 0 &&
                                     y.guards_intact() && b.guards_intact(),
                                 "not the bits of the group of threads");
              }
          })) == "");
  }
}

TEST_CASE("elements of several segments are summed, in place and copied, with many sums") {
  const auto check = [](auto& maker) {
    constexpr std::size_t n = (std::size_t{33} << 20) / sizeof(float) + 13, m = 20'000;
    CHECK(contract::first_error(run_members(maker, "segments", [&](auto& member, std::size_t r) {
            std::vector<float> x(n);
            std::vector<double> sums(m);
            for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i % 5 + r);
            for (std::size_t i = 0; i < m; ++i) sums[i] = static_cast<double>(i % 7 + r);
            member.all_reduce(x.data(), n, sums.data(), m);
            bool equal = true;
            for (std::size_t i = 0; i < n; ++i)
              equal = equal && x[i] == static_cast<float>(3 * (i % 5) + 3);
            for (std::size_t i = 0; i < m; ++i)
              equal = equal && sums[i] == static_cast<double>(3 * (i % 7) + 3);
            contract::expect(equal, "not the sum");
          })) == "");
  };
  Halves copied(3, contract::no_timeout);
  check(copied);
  SomeInPlace some(3, contract::no_timeout);
  check(some);
}

TEST_CASE("all members count the same parts of operations, whatever they do in them") {
  SomeInPlace maker(5, contract::no_timeout);
  std::vector<std::uint64_t> done(5);
  CHECK(contract::first_error(run_members(maker, "progress", [&](auto& member, std::size_t r) {
          contract::check_sum<float>(member, SumOrder::ranks, 1, 10);
          contract::check_sum<float>(member, SumOrder::ranks, 2, 100'000);
          contract::check_broadcast<float>(member, 3, 1'000'000, 2);
          contract::check_gather<float>(member, 4, 100'000);
          member.barrier();
          done[r] = maker.group(r).progress().done;
        })) == "");
  CHECK(done[0] >= 10);
  CHECK(done == std::vector<std::uint64_t>(5, done[0]));
}

TEST_CASE("a lost rank is named by all members on all machines, whoever heard of it") {
  for (std::size_t informed = 0; informed < 4; ++informed) {
    Machines<SumOrder::ranks, pairs> maker(5, contract::no_timeout);
    std::thread control([&] {
      std::this_thread::sleep_for(5ms);
      maker.member(informed).lose(4);
    });
    const auto errors = run_members(maker, "a lost rank",
                                    [&](MachineGroup& member, std::size_t) {
                                      std::vector<float> x(100'000);
                                      member.all_reduce(x.data(), x.size());
                                    },
                                    {4});
    control.join();
    for (std::size_t r = 0; r < 4; ++r) {
      INFO(informed << " " << r);
      CHECK(contract::text_of(errors[r]) ==
            "all_reduce: replica " + std::to_string(r) + " stopped because a replica was lost (4)");
    }
  }
}

TEST_CASE("calls that differ between machines are named with the ranks of the job") {
  Halves maker(6, contract::no_timeout);
  const auto errors = run_members(maker, "calls", [](MachineGroup& member, std::size_t rank) {
    std::vector<float> x(5);
    rank < 3 ? member.all_reduce(x.data(), 5) : member.broadcast(x.data(), 5, 4);
  });
  for (std::size_t r = 0; r < 6; ++r) {
    CHECK(contract::is<lockstep::UsageError>(errors[r]));
    const std::string text = contract::text_of(errors[r]);
    INFO(text);
    CHECK(text.find("replica 3 calls broadcast of 5 elements of float32 from replica 4") !=
          std::string::npos);
    CHECK(text.find("replica 0 calls all_reduce of 5 elements of float32") != std::string::npos);
  }
}

TEST_CASE("a machine group is refused if layout, memory and mesh do not fit") {
  const lockstep::MachineLayout layout{{2, 2}};
  const auto memory = SharedMemory::create(machine_test::memory_for(2));
  const auto meshes = machine_test::connect_lanes(layout, Topology::direct, false);
  const auto refuses = [&](std::size_t mesh, const lockstep::MachineLayout& machines,
                           std::size_t rank, const lockstep::GroupOptions& options = {}) {
    CHECK_THROWS_AS(MachineGroup(memory, meshes[mesh], machines, rank, options),
                    lockstep::UsageError);
  };
  refuses(0, layout, 4);
  refuses(0, layout, 2);  // of the other machine
  refuses(0, layout, 0, {.channel = 1});
  refuses(0, {{2, 2, 2}}, 0);
  refuses(0, {{1, 2}}, 1, {.order = SumOrder::tree});
  refuses(0, {{2, 0}}, 0);
  CHECK_NOTHROW(MachineGroup(memory, meshes[1], layout, 1));
}
