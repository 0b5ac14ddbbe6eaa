#include "lockstep/cluster/elastic/participant.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "unit/cluster/elastic/simulation.hpp"

using namespace elastic_test;

namespace {

/// Of two to five processes on one machine and more.
Weather weather(std::size_t seed, int faults) {
  Weather result;
  result.processes = 2 + seed % 4;
  result.machines = 1 + seed / 4 % result.processes;
  result.min_workers = 1 + seed / 16 % 2;
  result.loss = static_cast<unsigned>(seed / 7 % 3 * 5);
  result.faults = faults;
  return result;
}

/// Three processes, by default on machines of their own. Letters take no time; `drops` selects those
/// that are lost.
struct Three {
  explicit Three(std::function<bool(const Letter&, std::size_t to)> loses = {},
                 std::size_t min_workers = 1, bool on_one_machine = false)
      : drops(std::move(loses)), least(min_workers), one_machine(on_one_machine) {
    for (std::uint32_t i = 0; i < 3; ++i) {
      machines[i].id = {static_cast<std::uint8_t>(i + 1)};
      start(i, 100 + i);
    }
    run(milliseconds(500));
  }
  /// A process, instead of an earlier one.
  void start(std::uint32_t index, std::uint64_t incarnation) {
    ParticipantRules rules;
    rules.described = 3;
    rules.seats.min_workers = least;
    rules.silence = milliseconds(1000);
    rules.patience = milliseconds(8000);
    rules.random = [this] { return random(); };
    rules.port = [] { return std::uint16_t{1}; };
    all[index].reset();
    SimulatedMachine& machine = machines[one_machine ? 0 : index];
    votes[index] = std::make_unique<SimulatedVotes>(machine, index);
    all[index] = std::make_unique<Participant>(Identity{index, incarnation}, machine.id, rules,
                                               *votes[index]);
    outcomes[index].reset();
    all[index]->join(now);
  }
  void run(milliseconds time) {
    for (const auto end = now + time; now < end; now += milliseconds(10)) {
      for (auto& one : all) one->tick(now);
      for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t i = 0; i < 3; ++i)
          for (auto& outgoing : all[i]->take_outgoing()) {
            moved = true;
            if (drops && drops(outgoing.letter, outgoing.to)) continue;
            all[outgoing.to]->receive(outgoing.letter, now);
          }
      }
      for (std::size_t i = 0; i < 3; ++i)
        if (auto outcome = all[i]->take_outcome()) outcomes[i] = std::move(outcome);
    }
  }
  const Decision* decision(std::size_t i) const {
    return outcomes[i] ? std::get_if<Decision>(&*outcomes[i]) : nullptr;
  }

  Random random{3};
  std::array<SimulatedMachine, 3> machines{};
  std::array<std::unique_ptr<SimulatedVotes>, 3> votes{};
  std::array<std::unique_ptr<Participant>, 3> all{};
  std::array<std::optional<Participant::Outcome>, 3> outcomes{};
  std::function<bool(const Letter&, std::size_t)> drops{};
  std::size_t least = 1;  // workers
  bool one_machine = false;
  Participant::Time now = Participant::Time(std::chrono::hours(1));
};

}  // namespace

TEST_CASE("of two members that both propose, one decides and the other is left out") {
  Three job;
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(job.decision(i));
    CHECK(job.decision(i)->number == 0);
    CHECK(*job.decision(i) == *job.decision(0));
  }
  // Ranks 0 and 1 cannot reach each other, and rank 2 votes for the first that asks.
  job.drops = [](const Letter& letter, std::size_t to) { return letter.from.index + to == 1; };
  job.outcomes = {};
  for (auto& one : job.all) one->next(job.now);
  job.run(milliseconds(5000));
  REQUIRE(job.decision(2));
  const Decision& decided = *job.decision(2);
  CHECK(decided.number == 1);
  CHECK(decided.seats.size() == 2);
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    REQUIRE(job.outcomes[i].has_value());
    if (job.decision(i)) {
      CHECK(*job.decision(i) == decided);
    } else {
      CHECK(std::get<ElasticFailure>(*job.outcomes[i]).kind == ElasticFailure::Kind::left_out);
      ++left_out;
    }
  }
  CHECK(left_out == 1);
}

TEST_CASE("a newcomer that is rejected ends at once if the others wait for another one") {
  Three job({}, 3);
  const auto end = [&](std::initializer_list<std::size_t> members) {
    for (const std::size_t i : members) {
      job.outcomes[i].reset();
      job.all[i]->next(job.now);
    }
  };
  job.start(2, 200);
  end({0, 1});
  job.run(milliseconds(500));
  REQUIRE(job.decision(2));
  CHECK(job.decision(2)->number == 1);
  for (const std::size_t i : {0u, 1u}) job.all[i]->reject_newcomers(job.now);
  end({0, 1, 2});
  job.run(milliseconds(500));
  REQUIRE(job.outcomes[2].has_value());
  const auto* const failure = std::get_if<ElasticFailure>(&*job.outcomes[2]);
  REQUIRE(failure);
  CHECK(failure->kind == ElasticFailure::Kind::not_admitted);
  CHECK(failure->sentence ==
        "could not form a generation with this process; start it again once it can reach the other "
        "workers");
  CHECK_FALSE(job.outcomes[0].has_value());
  job.start(2, 300);
  job.run(milliseconds(2000));
  REQUIRE(job.decision(2));
  CHECK(job.decision(2)->number == 2);
  CHECK(*job.decision(0) == *job.decision(2));
}

TEST_CASE("a newcomer that is rejected stays while the others need its vote") {
  Three job({}, 2);
  job.start(2, 200);
  job.run(milliseconds(300));
  for (const std::size_t i : {0u, 1u}) job.all[i]->next(job.now);
  job.run(milliseconds(500));
  REQUIRE(job.decision(2));
  CHECK(job.decision(2)->number == 1);
  job.outcomes = {};
  job.start(0, 300);  // rank 0 is lost, and rank 1 is half of a quorum
  job.all[1]->reject_newcomers(job.now);
  for (const std::size_t i : {1u, 2u}) job.all[i]->next(job.now);
  job.run(milliseconds(1500));
  REQUIRE(job.decision(1));
  CHECK(job.decision(1)->rank_of(Identity{0, 300}).has_value());
  REQUIRE(job.outcomes[2].has_value());
  const auto* const failure = std::get_if<ElasticFailure>(&*job.outcomes[2]);
  REQUIRE(failure);
  CHECK(failure->kind == ElasticFailure::Kind::left_out);
}

TEST_CASE("a job whose machine was suspended does not take its members for silent") {
  Three job({}, 1, true);
  job.outcomes = {};
  for (const std::size_t i : {0u, 1u}) job.all[i]->next(job.now);  // rank 2 is still busy
  job.run(milliseconds(300));
  job.now += std::chrono::seconds(5);
  // A letter arrives before the first tick.
  job.all[1]->tick(job.now);
  for (auto& outgoing : job.all[1]->take_outgoing())
    if (outgoing.to == 0) job.all[0]->receive(outgoing.letter, job.now);
  job.run(milliseconds(300));
  CHECK_FALSE(job.outcomes[0].has_value());
  job.all[2]->next(job.now);
  job.run(milliseconds(300));
  REQUIRE(job.decision(2));
  CHECK(job.decision(2)->seats.size() == 3);
}

TEST_CASE("a suspended machine does not use up the time that a lost quorum has to come back") {
  bool is_cut = false;
  Three job([&](const Letter&, std::size_t) { return is_cut; });
  job.outcomes = {};
  is_cut = true;
  for (auto& one : job.all) one->next(job.now);
  job.run(milliseconds(1300));
  job.now += std::chrono::seconds(5);
  is_cut = false;
  job.run(milliseconds(1000));
  REQUIRE(job.decision(0));
  CHECK(job.decision(0)->seats.size() >= 2);
}

TEST_CASE("members that always run late notice that another one is silent") {
  Three job;
  job.outcomes = {};
  job.drops = [](const Letter& letter, std::size_t to) {
    return letter.from.index == 2 || to == 2;
  };
  for (const std::size_t i : {0u, 1u}) job.all[i]->next(job.now);
  for (int step = 0; step < 12; ++step) {  // 6 of the 8 s that an agreement may take
    job.run(milliseconds(10));
    job.now += milliseconds(490);
  }
  REQUIRE(job.decision(0));
  CHECK(job.decision(0)->seats.size() == 2);
}

TEST_CASE("a generation that ends just before a tick is followed at once") {
  Three job;
  job.outcomes = {};
  job.now += milliseconds(249);
  for (auto& one : job.all) one->next(job.now);
  job.now += milliseconds(25);
  job.run(milliseconds(50));
  REQUIRE(job.decision(0));
  CHECK(job.decision(0)->seats.size() == 3);
}

TEST_CASE("newcomers that fail at an address interrupt the job less and less") {
  using std::chrono::seconds;
  lockstep::detail::NewcomerPauses pauses(2);
  Participant::Time now(std::chrono::hours(1));
  for (const int pause : {1, 2, 4, 8, 16, 16}) {
    pauses.extend(1, now);
    CHECK(pauses.is_paused(1, now + seconds(pause) - milliseconds(1)));
    CHECK_FALSE(pauses.is_paused(0, now));
    now += seconds(pause);
    CHECK_FALSE(pauses.is_paused(1, now));
  }
  now += seconds(60);
  pauses.extend(1, now);
  CHECK_FALSE(pauses.is_paused(1, now + seconds(1)));
}

TEST_CASE("the processes of a large job meet at index 0, and connect to each other later") {
  constexpr std::uint32_t size = 64;
  Random random{5};
  SimulatedMachine machine{.id = {1}};
  std::vector<std::unique_ptr<SimulatedVotes>> votes;
  std::vector<std::unique_ptr<Participant>> all;
  Participant::Time now(std::chrono::hours(1));
  std::set<std::pair<std::size_t, std::size_t>> pairs;  // the connections
  std::size_t formed = 0;
  const auto run = [&](milliseconds time) {
    for (const auto end = now + time; now < end; now += milliseconds(10)) {
      for (auto& one : all) one->tick(now);
      for (std::uint32_t i = 0; i < all.size(); ++i)
        for (auto& outgoing : all[i]->take_outgoing()) {
          pairs.insert(std::minmax<std::size_t>(i, outgoing.to));
          if (outgoing.to < all.size()) all[outgoing.to]->receive(outgoing.letter, now);
        }
      for (auto& one : all) formed += one->take_outcome().has_value();
    }
  };
  for (std::uint32_t i = 0; i < size; ++i) {
    ParticipantRules rules{.described = size};
    rules.random = [&] { return random(); };
    rules.port = [] { return std::uint16_t{1}; };
    votes.push_back(std::make_unique<SimulatedVotes>(machine, i));
    all.push_back(
        std::make_unique<Participant>(Identity{i, 100 + i}, machine.id, rules, *votes[i]));
    all[i]->join(now);
    if (i + 2 < size) continue;
    run(milliseconds(1500));
    if (i + 2 == size)
      for (const auto& one : all)
        CHECK(one->waits_for(now) == lockstep::detail::MissingMembers{1, {size - 1}});
    // Each with index 0, and a search a second.
    if (i + 2 == size) CHECK(pairs.size() < 3 * size);
  }
  CHECK(formed == size);
  run(milliseconds(1000));
  CHECK(pairs.size() == size * (size - 1) / 2);
}

TEST_CASE("a process holds the votes of a run before it can be a member") {
  // Else they could be removed while a member lives that has not learned of its membership.
  const Three job([](const Letter& letter, std::size_t to) {
    return to == 2 && std::holds_alternative<lockstep::detail::Decided>(letter.message);
  });
  REQUIRE(job.decision(0));
  CHECK(job.decision(0)->rank_of(job.all[2]->self()) == 2u);
  CHECK(job.all[2]->standing() == Standing::fresh);
  CHECK(job.machines[2].folders.count(job.decision(0)->run) == 1);
}

TEST_CASE("a decision that no member can have made is ignored") {
  Three job;
  REQUIRE(job.decision(1));
  const Decision now = *job.decision(1);
  Decision wrong = now;
  wrong.number = 1;
  for (std::uint32_t r = 0; r < 3; ++r) wrong.seats[r].former = r;
  const auto ignores = [&](const Decision& decision) {
    std::uint64_t serial = 1000;
    job.all[1]->receive({{0, 100}, serial, lockstep::detail::Decided{decision}}, job.now);
    return job.all[1]->decision() == now;
  };
  SECTION("an index that is not described") {
    wrong.seats[2] = {{7, 5}, {}, Seat::newcomer};
    CHECK(ignores(wrong));
    wrong.number = 5;
    CHECK(ignores(wrong));
  }
  SECTION("a survivor that was not a member") {
    wrong.seats[2].who.incarnation = 5;
    CHECK(ignores(wrong));
  }
  SECTION("a possible one") { CHECK_FALSE(ignores(wrong)); }
}

TEST_CASE("a member whose machine cannot vote names the file") {
  Three job;
  for (std::size_t i = 0; i < 3; ++i) {
    job.votes[i]->blocked = "guard";
    job.all[i]->next(job.now);
  }
  job.outcomes = {};
  job.run(milliseconds(9000));
  REQUIRE(job.outcomes[0].has_value());
  const auto* const failure = std::get_if<ElasticFailure>(&*job.outcomes[0]);
  REQUIRE(failure);
  CHECK(failure->kind == ElasticFailure::Kind::no_vote);
  CHECK(failure->sentence == "guard");
}

TEST_CASE("all members of a generation that becomes too small name the lost one") {
  Three job({}, 3);
  job.outcomes = {};
  job.all[1]->leave();
  for (const std::size_t i : {std::size_t{0}, std::size_t{2}}) job.all[i]->next(job.now);
  job.run(milliseconds(9000));
  for (const std::size_t i : {std::size_t{0}, std::size_t{2}}) {
    REQUIRE(job.outcomes[i].has_value());
    const auto* const failure = std::get_if<ElasticFailure>(&*job.outcomes[i]);
    REQUIRE(failure);
    CHECK(failure->kind == ElasticFailure::Kind::too_few);
    CHECK(failure->rank == 1);
  }
}

TEST_CASE("after random faults one generation trains, and never two") {
  std::size_t generations = 0, formed = 0;
  for (std::size_t seed = 0; seed < 1000; ++seed) {
    Simulation simulation(seed, weather(seed, 3));
    const std::string wrong = simulation.run();
    CAPTURE(seed);
    REQUIRE(wrong == "");
    generations += simulation.generations();
    formed += simulation.formed();
  }
  CHECK(formed > 1500);
  CHECK(generations > formed);  // some were lost before they could train
}

TEST_CASE("the simulation finds votes that die with a process") {
  std::size_t found = 0;
  for (std::size_t seed = 0; seed < 2000 && found == 0; ++seed) {
    Weather forgetful = weather(seed, 20);
    forgetful.forgetful = true;
    found += Simulation(seed, forgetful).run() == "two memberships of one generation";
  }
  CHECK(found == 1);
}

TEST_CASE("after many random faults one generation trains, and never two", "[.slow]") {
  std::size_t generations = 0;
  for (std::size_t seed = 0; seed < 100'000; ++seed) {
    Simulation simulation(seed, weather(seed, 30));
    const std::string wrong = simulation.run();
    CAPTURE(seed);
    REQUIRE(wrong == "");
    generations += simulation.generations();
  }
  WARN(generations << " generations");
}
