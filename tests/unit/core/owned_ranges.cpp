#include "lockstep/core/owned_ranges.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <random>
#include <span>
#include <vector>

using lockstep::Ranges;
using lockstep::shares_of;
using lockstep::Slice;

namespace {

std::vector<Slice> units_of(const std::vector<std::size_t>& sizes) {
  std::vector<Slice> units;
  std::size_t first = 0;
  for (const std::size_t size : sizes) {
    units.push_back({first, size});
    first += size;
  }
  return units;
}

}  // namespace

TEST_CASE("ranges leave out empty parts and join neighbours, so equal sets are equal values") {
  const Ranges parts{{0, 4}, {4, 0}, {4, 6}, {20, 5}, {30, 0}};
  CHECK(parts == Ranges{{0, 10}, {20, 5}});
  CHECK(parts.size() == 15);
  CHECK(std::vector<Slice>(parts.begin(), parts.end()) == std::vector<Slice>{{0, 10}, {20, 5}});
  CHECK(Ranges{{3, 0}} == Ranges{});
}

TEST_CASE("the parts within a range come with their places in a packed buffer") {
  const Ranges parts{{2, 4}, {10, 3}, {20, 5}};
  const auto found = [&](Slice range) {
    std::vector<std::size_t> all;
    parts.each_within(range, [&](Slice part, std::size_t place) {
      all.insert(all.end(), {part.first, part.count, place});
    });
    return all;
  };
  CHECK(found({0, 30}) == std::vector<std::size_t>{2, 4, 0, 10, 3, 4, 20, 5, 7});
  CHECK(found({4, 7}) == std::vector<std::size_t>{4, 2, 2, 10, 1, 4});
  CHECK(found({22, 1}) == std::vector<std::size_t>{22, 1, 9});
  CHECK(found({6, 4}).empty());
  CHECK(found({12, 0}).empty());
}

TEST_CASE("shares without units are even, also if the size does not divide") {
  CHECK(shares_of(10, 3) == std::vector<Slice>{{0, 4}, {4, 3}, {7, 3}});
  CHECK(shares_of(2, 4) == std::vector<Slice>{{0, 1}, {1, 1}, {2, 0}, {2, 0}});
  CHECK(shares_of(0, 2) == std::vector<Slice>{{0, 0}, {0, 0}});
}

TEST_CASE("shares are cut between units only, at the boundaries that are nearest") {
  CHECK(shares_of(10, 3, units_of({6, 4})) == std::vector<Slice>{{0, 6}, {6, 0}, {6, 4}});
  CHECK(shares_of(10, 2, units_of({4, 2, 4})) == std::vector<Slice>{{0, 4}, {4, 6}});
  CHECK(shares_of(9, 1, units_of({4, 5})) == std::vector<Slice>{{0, 9}});
  CHECK(shares_of(3, 5, units_of({3})) ==
        std::vector<Slice>{{0, 0}, {0, 3}, {3, 0}, {3, 0}, {3, 0}});
}

TEST_CASE("shares cover all elements once, in the order of the owners") {
  std::mt19937_64 random(1);
  for (int run = 0; run < 10'000; ++run) {
    const std::size_t owners = 1 + random() % 12;
    std::vector<std::size_t> sizes(random() % 9);
    for (std::size_t& size : sizes) size = 1 + random() % 50;
    const std::vector<Slice> units = units_of(sizes);
    const std::size_t n = units.empty() ? random() % 100 : units.back().first + units.back().count;
    const std::vector<Slice> shares = shares_of(n, owners, units);
    REQUIRE(shares.size() == owners);
    std::size_t end = 0;
    for (const Slice& share : shares) {
      REQUIRE(share.first == end);
      end += share.count;
      const auto begins = [&](const Slice& unit) { return unit.first == end; };
      REQUIRE((units.empty() || end == n || std::any_of(units.begin(), units.end(), begins)));
    }
    REQUIRE(end == n);
  }
}

TEST_CASE("the parts of shares within a range keep the order of the shares") {
  const std::vector<Slice> shares{{0, 4}, {4, 0}, {4, 3}, {7, 3}};
  std::vector<Slice> parts{{1, 1}};
  const auto within = [&](Slice range) {
    lockstep::parts_within(shares, range, parts);
    return parts;
  };
  CHECK(within({0, 10}) == shares);
  CHECK(within({3, 4}) == std::vector<Slice>{{3, 1}, {4, 0}, {4, 3}, {7, 0}});
  CHECK(within({8, 1}) == std::vector<Slice>{{8, 0}, {8, 0}, {8, 0}, {8, 1}});
  CHECK(within({5, 0}) == std::vector<Slice>{{5, 0}, {5, 0}, {5, 0}, {5, 0}});
}

TEST_CASE("rounds of shares without elements in a range are left out") {
  const std::vector<Slice> two{{0, 4}, {6, 2}, {4, 2}, {8, 3}};
  std::vector<Slice> parts;
  const auto within = [&](Slice range) {
    std::vector<std::vector<Slice>> all;
    lockstep::each_round_within(two, 2, range, parts, [&](std::span<const Slice> round) {
      all.emplace_back(round.begin(), round.end());
    });
    return all;
  };
  using Rounds = std::vector<std::vector<Slice>>;
  CHECK(within({0, 11}) == Rounds{{{0, 4}, {6, 2}}, {{4, 2}, {8, 3}}});
  CHECK(within({3, 2}) == Rounds{{{3, 1}, {5, 0}}, {{4, 1}, {5, 0}}});
  CHECK(within({6, 2}) == Rounds{{{6, 0}, {6, 2}}});
  CHECK(within({4, 0}).empty());
}
