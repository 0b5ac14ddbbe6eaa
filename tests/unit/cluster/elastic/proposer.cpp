#include "lockstep/cluster/elastic/proposer.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "unit/cluster/elastic/model.hpp"

using namespace elastic_test;

namespace {

constexpr std::size_t no_limit = 1'000'000'000;

/// All ways in which three processes can be on machines.
const std::vector<std::vector<std::uint8_t>> layouts{
    {0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {0, 1, 1}, {0, 1, 2}};

std::string name(const std::vector<std::uint8_t>& layout) {
  std::string text;
  for (const auto machine : layout) text += static_cast<char>('A' + machine);
  return text;
}

Quorum on(const std::vector<std::uint8_t>& layout) {
  std::vector<MachineId> ids;
  for (const auto machine : layout) ids.push_back({machine});
  return Quorum(ids);
}

}  // namespace

TEST_CASE("a proposer proposes its own value, unless a promise reports one") {
  Proposer proposer(on({0, 1, 2}), 1);
  proposer.begin("mine");
  const Ballot first = proposer.ballot();
  CHECK(first == Ballot{1, 1});
  proposer.on_promise(0, first, {first, {}, {}});
  proposer.on_promise(0, first, {first, {}, {}});  // the same machine again
  CHECK(proposer.phase() == Proposer::Phase::preparing);
  CHECK(proposer.waits_for(1));
  proposer.on_promise(2, first, {first, {}, {}});
  CHECK(proposer.phase() == Proposer::Phase::accepting);
  CHECK(proposer.value() == "mine");
  proposer.on_accepted(1, {7, 1}, {7, 1});  // an answer to another ballot
  proposer.on_accepted(0, first, first);
  CHECK(proposer.phase() == Proposer::Phase::accepting);
  proposer.on_accepted(2, first, first);
  CHECK(proposer.phase() == Proposer::Phase::decided);

  Proposer second(on({0, 1, 2}), 2);
  second.begin("other");
  const Ballot ballot = second.ballot();
  second.on_promise(0, ballot, {ballot, first, "mine"});
  second.on_promise(1, ballot, {ballot, {}, {}});
  CHECK(second.value() == "mine");
}

TEST_CASE("a refused proposer begins above what refused it") {
  Proposer proposer(on({0, 1, 2}), 0);
  proposer.begin("a");
  proposer.on_promise(1, proposer.ballot(), {{5, 2}, {}, {}});
  CHECK(proposer.phase() == Proposer::Phase::refused);
  proposer.begin("a");
  CHECK(proposer.ballot() == Ballot{6, 0});
}

TEST_CASE("no interleaving of two attempts and of crashes decides two values") {
  std::size_t states = 0;
  for (const auto& layout : layouts) {
    CAPTURE(name(layout));
    const std::size_t crashes = layout == layouts.back() ? 0 : 2;  // more in the slow test
    const Findings found = Model({.machines = layout, .crashes = crashes}).search(no_limit, 16);
    CHECK_FALSE(found.two_values);
    CHECK_FALSE(found.stuck);
    CHECK(found.decided > 0);
    states += found.states;
  }
  CHECK(states > 50'000);
}

TEST_CASE("the search finds faults of the protocol") {
  const auto finds = [](Setup setup) { return Model(std::move(setup)).search(no_limit, no_limit); };
  CHECK(finds({.machines = {0, 1, 2}, .quorum_without_dead = true}).two_values);
  CHECK(finds({.machines = {0, 1, 2}, .ignores_promises = true}).two_values);
  CHECK(finds({.machines = {0, 0, 1}, .votes_die_with_processes = true}).two_values);
}

TEST_CASE("no interleaving of three attempts and two crashes decides two values", "[.slow]") {
  for (const auto& layout : layouts) {
    CAPTURE(name(layout));
    const Findings found = Model({.machines = layout, .attempts = 3}).search(no_limit, 64);
    CHECK_FALSE(found.two_values);
    CHECK_FALSE(found.stuck);
    CHECK(found.states > 0);
    WARN(name(layout) << ": " << found.states << " states, " << found.transitions
                      << " transitions, decided in " << found.decided);
  }
}
