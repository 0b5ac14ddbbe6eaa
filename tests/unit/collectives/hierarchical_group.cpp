#include "lockstep/collectives/hierarchical_group.hpp"

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <vector>

#include "contract.hpp"

namespace {

using Across = lockstep::ThreadGroup::Member;
using Group = lockstep::HierarchicalGroup<Across>;

/// Simulates processes by groups of threads, with a ThreadGroup between them.
template <lockstep::SumOrder sum_order, auto split>
struct Hierarchy {
  static constexpr std::size_t max_size = 8;
  static constexpr lockstep::SumOrder order = sum_order;
  static constexpr bool can_end = false;  // errors differ between processes: see below

  Hierarchy(std::size_t size, std::chrono::milliseconds timeout) : replicas(split(size)) {
    between = std::make_unique<lockstep::ThreadGroup>(lockstep::ThreadGroup::Options{
        .size = replicas.size(), .timeout = timeout, .order = sum_order});
    for (std::size_t p = 0; p < replicas.size(); ++p)
      places.push_back(std::make_unique<Across>(*between, p));
    for (std::size_t p = 0; p < replicas.size(); ++p) {
      groups.push_back(std::make_unique<Group>(
          *places[p], replicas,
          lockstep::ThreadGroup::Options{
              .size = replicas[p], .timeout = timeout, .order = sum_order}));
      for (std::size_t i = 0; i < replicas[p]; ++i)
        members.push_back(std::make_unique<Group::Member>(*groups[p], i));
    }
  }
  std::size_t size() const { return members.size(); }
  Group::Member& member(std::size_t rank) { return *members[rank]; }

  std::vector<std::size_t> replicas;
  std::unique_ptr<lockstep::ThreadGroup> between;
  std::vector<std::unique_ptr<Across>> places;
  std::vector<std::unique_ptr<Group>> groups;
  std::vector<std::unique_ptr<Group::Member>> members;
};

using Replicas = std::vector<std::size_t>;
Replicas one_process(std::size_t n) { return {n}; }
Replicas one_each(std::size_t n) { return Replicas(n, 1); }
// A sum over a process and then one more replica is in the order of ranks, too.
Replicas all_and_one(std::size_t n) { return n > 1 ? Replicas{n - 1, 1} : Replicas{1}; }
// The two halves of a binary tree.
Replicas halves(std::size_t n) { return n > 1 ? Replicas{(n + 1) / 2, n / 2} : Replicas{1}; }

}  // namespace

TEST_CASE("replicas in several processes are one collective") {
  using lockstep::SumOrder;
  SECTION("all in one") { contract::check_collective<Hierarchy<SumOrder::ranks, one_process>>(); }
  SECTION("one in each") { contract::check_collective<Hierarchy<SumOrder::ranks, one_each>>(); }
  SECTION("all but one in the first") {
    contract::check_collective<Hierarchy<SumOrder::ranks, all_and_one>>();
  }
  SECTION("half in each") { contract::check_collective<Hierarchy<SumOrder::tree, halves>>(); }
}

TEST_CASE("ranks number the replicas process by process") {
  lockstep::ThreadGroup between({.size = 3});
  Across second(between, 1);
  Group group(second, {2, 3, 1}, {.size = 3});
  CHECK(Group::Member(group, 0).rank() == 2);
  CHECK(Group::Member(group, 2).rank() == 4);
  CHECK(Group::Member(group, 2).size() == 6);
  CHECK_THROWS_AS(Group(second, {2, 2, 1}, {.size = 3}), lockstep::UsageError);
  CHECK_THROWS_AS(Group(second, {2, 3}, {.size = 3}), lockstep::UsageError);
}

TEST_CASE("a failing member or an abort ends the operation in all processes") {
  using Maker = Hierarchy<lockstep::SumOrder::ranks, halves>;
  for (std::size_t guilty = 0; guilty < 5; ++guilty) {
    Maker maker(5, contract::no_timeout);
    const auto errors =
        contract::run_members(maker, "a wrong size", [&](auto& member, std::size_t rank) {
          std::vector<float> x(20);
          member.all_reduce(x.data(), rank == guilty ? 11 : 20);
        });
    for (const auto& error : errors) CHECK(error);
  }
  Maker maker(5, std::chrono::milliseconds(50));
  const auto errors = contract::run_members(
      maker, "one is missing", [](auto& member, std::size_t) { member.barrier(); }, {4});
  for (std::size_t r = 0; r < 4; ++r) CHECK(contract::is<lockstep::CollectiveError>(errors[r]));
}
