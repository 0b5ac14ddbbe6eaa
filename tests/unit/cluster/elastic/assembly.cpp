#include "lockstep/cluster/elastic/assembly.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

using namespace lockstep::detail;

namespace {

Seat seat(std::uint32_t index, std::uint8_t machine, std::uint32_t former = Seat::newcomer) {
  return {{index, 100 + index}, {machine}, former};
}

bool even(std::size_t workers) { return workers % 2 == 0; }

constexpr auto unknown = Presence::unknown, busy = Presence::busy, ready = Presence::ready,
               silent = Presence::silent, gone = Presence::gone;

}  // namespace

TEST_CASE("the lowest rank that may be alive proposes, without patience the lowest that is ready") {
  CHECK(proposing_rank({gone, silent, busy, ready}, true) == 2u);
  CHECK(proposing_rank({gone, silent, busy, ready}, false) == 3u);
  CHECK(proposing_rank({unknown, ready}, true) == 0u);
  CHECK(proposing_rank({gone, silent}, true) == std::nullopt);
  CHECK(all_known({ready, gone, silent}, true));
  CHECK_FALSE(all_known({ready, busy}, true));
  CHECK(all_known({ready, busy}, false));
  CHECK_FALSE(all_known({ready, unknown}, false));
}

TEST_CASE("a generation has as many workers as fit") {
  CHECK(accepted_size(3, 1, {}) == 3);
  CHECK(accepted_size(3, 1, even) == 2);
  CHECK(accepted_size(3, 3, even) == 0);
  CHECK(accepted_size(1, 2, {}) == 0);
  CHECK(accepted_size(0, 1, even) == 0);
}

TEST_CASE("the next generation has the survivors, then newcomers") {
  const std::vector<Seat> survivors{seat(2, 1, 0), seat(0, 1, 3)};
  const auto both = assemble(survivors, {seat(1, 1), seat(3, 2)}, {});
  REQUIRE(both.size() == 4);
  CHECK(both[0] == survivors[0]);
  CHECK(both[1] == survivors[1]);
  CHECK(both[3] == seat(3, 2));
  CHECK(assemble(survivors, {seat(1, 1)}, {.fits = even}) == survivors);
  CHECK(assemble(survivors, {}, {.min_workers = 3}).empty());
  CHECK(assemble({seat(0, 1, 0), seat(1, 1, 1), seat(2, 1, 2)}, {}, {.fits = even}).size() == 2);
}

TEST_CASE("newcomers of other machines never outweigh the survivors") {
  const std::vector<Seat> one{seat(0, 1, 0)};
  // Half with the machine of rank 0 is a quorum, more is not.
  CHECK(assemble(one, {seat(1, 2), seat(2, 3), seat(3, 4)}, {}).size() == 2);
  CHECK(assemble(one, {seat(1, 1), seat(2, 2), seat(3, 3)}, {}).size() == 4);
  CHECK(assemble(one, {seat(1, 2), seat(2, 2), seat(3, 1)}, {}).size() == 3);
}

TEST_CASE("with servers the ranks of each role are contiguous, and only workers count") {
  // Described: chief 0, workers 1 and 2, servers 3 and 4.
  const SeatRules rules{.min_workers = 1, .tasks = {{1, 2}, {3, 2}}};
  const auto indices = [&](const std::vector<Seat>& survivors, const std::vector<Seat>& newcomers) {
    const std::vector<Seat> seats = assemble(survivors, newcomers, rules);
    std::vector<std::uint32_t> found;
    for (const Seat& one : seats) found.push_back(one.who.index);
    for (const SeatRole role : {SeatRole::worker, SeatRole::server, SeatRole::chief}) {
      const lockstep::Slice ranks = rules.tasks.ranks_of(role, seats);
      for (std::size_t r = 0; r < seats.size(); ++r)
        CHECK(ranks.contains(r) == (rules.tasks.role_of(seats[r]) == role));
    }
    return found;
  };
  using Indices = std::vector<std::uint32_t>;
  CHECK(indices({seat(0, 1, 0), seat(2, 1, 2), seat(4, 1, 4)}, {}) == Indices{0, 2, 4});
  CHECK(indices({seat(0, 1, 0), seat(2, 1, 2), seat(4, 1, 4)}, {seat(1, 1), seat(3, 1)}) ==
        Indices{0, 1, 2, 3, 4});
  // The first survivor keeps rank 0, and a chief that returns comes last.
  CHECK(indices({seat(2, 1, 2), seat(3, 1, 3), seat(4, 1, 4)}, {seat(0, 1), seat(1, 1)}) ==
        Indices{2, 1, 3, 4, 0});
  CHECK(indices({seat(4, 1, 4)}, {seat(0, 1), seat(1, 1), seat(3, 1)}) == Indices{4, 3, 1, 0});
  // No worker is left, and servers do not make up for it.
  CHECK(indices({seat(0, 1, 0), seat(3, 1, 3), seat(4, 1, 4)}, {}).empty());
  CHECK(indices({seat(1, 1, 1)}, {}) == Indices{1});
  const SeatRules two{.min_workers = 2, .tasks = rules.tasks};
  CHECK(assemble({seat(1, 1, 1), seat(3, 1, 3), seat(4, 1, 4)}, {}, two).empty());
  const SeatRules one{.fits = [](std::size_t n) { return n == 1; }, .tasks = rules.tasks};
  const auto fewer = assemble({seat(1, 1, 1), seat(2, 1, 2), seat(3, 1, 3)}, {}, one);
  REQUIRE(fewer.size() == 2);
  CHECK(fewer[1] == seat(3, 1, 3));
}

TEST_CASE("a generation follows another one only with the same survivors") {
  Decision now{5, 3, 0, 1000, {seat(0, 1), seat(1, 1), seat(2, 2)}};
  const Decision next{5, 4, 0, 1000, {seat(1, 1, 1), seat(3, 1)}};
  CHECK(may_follow(now, next));
  const auto differs = [&](auto change) {
    Decision other = next;
    change(other);
    return !may_follow(now, other);
  };
  CHECK(differs([](Decision& d) { d.run = 6; }));
  CHECK(differs([](Decision& d) { d.number = 5; }));
  CHECK(differs([](Decision& d) { d.port = 0; }));
  CHECK(differs([](Decision& d) { d.seats[0].former = 2; }));
  CHECK(differs([](Decision& d) { d.seats[0].former = 3; }));
  CHECK(differs([](Decision& d) { d.seats[0].former = Seat::newcomer; }));
  CHECK(differs([](Decision& d) { d.seats[0].machine = {9}; }));
  CHECK(differs([](Decision& d) { d.seats[0].who.incarnation = 7; }));
}
