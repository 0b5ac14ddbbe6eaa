/// Shares of equal cost: whole units by size, divisible ones as a filling, and their parts in rounds.
#include "lockstep/training/step/balanced_shares.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <random>
#include <span>
#include <vector>

using lockstep::balanced_shares;
using lockstep::Ranges;
using lockstep::rounds_of;
using lockstep::ShareUnit;
using lockstep::Slice;

namespace {

constexpr std::size_t block = 64;

struct Part {
  std::size_t count, of_each;  // elements, and the cost of one
  bool is_divisible = false;
};
std::vector<ShareUnit> units_of(const std::vector<Part>& parts) {
  std::vector<ShareUnit> units;
  std::size_t first = 0;
  for (const Part& p : parts) {
    units.push_back({{first, p.count}, p.count * p.of_each, p.is_divisible});
    first += p.count;
  }
  return units;
}
std::size_t cost_of(const Ranges& share, std::span<const ShareUnit> units) {
  std::size_t cost = 0;
  for (const ShareUnit& u : units)
    share.each_within(
        u.range, [&](Slice part, std::size_t) { cost += part.count * (u.cost / u.range.count); });
  return cost;
}

}  // namespace

TEST_CASE("whole units go to the owner with the least, the most expensive first") {
  const auto shares = [](const std::vector<Part>& parts, std::size_t owners) {
    return balanced_shares(units_of(parts), owners, block);
  };
  CHECK(shares({{6, 1}, {4, 1}, {3, 1}}, 2) == std::vector<Ranges>{Ranges{{0, 6}}, Ranges{{6, 7}}});
  CHECK(shares({{1, 1}, {1, 1}, {2, 1}, {4, 1}}, 2) ==
        std::vector<Ranges>{Ranges{{4, 4}}, Ranges{{0, 4}}});
  CHECK(shares({{2, 1}, {2, 5}}, 3) ==
        std::vector<Ranges>{Ranges{{2, 2}}, Ranges{{0, 2}}, Ranges{}});
  // Without costs, elements count.
  CHECK(shares({{6, 0}, {4, 0}, {3, 0}}, 2) == std::vector<Ranges>{Ranges{{0, 6}}, Ranges{{6, 7}}});
  CHECK(shares({}, 2) == std::vector<Ranges>(2));
}

TEST_CASE("divisible units fill up the shares in blocks") {
  const auto units = units_of({{1000, 2, true}, {640, 1}, {64, 1}});
  const std::vector<Ranges> shares = balanced_shares(units, 2, block);
  // 1352 each: 640 and 356 of two, or 64 and 644 of two.
  CHECK(shares ==
        std::vector<Ranges>{Ranges{{0, 384}, {1000, 640}}, Ranges{{384, 616}, {1640, 64}}});
}

TEST_CASE("no more units are divided than it takes to fill up the shares") {
  const auto units = units_of({{1280, 1, true}, {6400, 1, true}, {640, 1}, {640, 1}, {640, 1}});
  const std::vector<Ranges> shares = balanced_shares(units, 2, block);
  CHECK(shares == std::vector<Ranges>{Ranges{{0, 4160}, {8960, 640}}, Ranges{{4160, 4800}}});
}

TEST_CASE("small units stay with the unit before them") {
  const auto units = units_of({{3, 1, true}, {10'000, 1}, {10, 1, true}, {10'000, 1}, {10, 1}});
  const std::vector<Ranges> shares = balanced_shares(units, 2, block);
  CHECK(shares == std::vector<Ranges>{Ranges{{0, 10'013}}, Ranges{{10'013, 10'010}}});
}

TEST_CASE("random shares cover all elements once, and no owner has more than its bound") {
  std::mt19937_64 random(1);
  for (int run = 0; run < 3000; ++run) {
    const std::size_t owners = 1 + random() % 9;
    std::vector<Part> parts(random() % 30);
    for (Part& p : parts)
      p = {1 + random() % (random() % 2 == 0 ? 5000 : 50), 1 + random() % 3, random() % 3 == 0};
    const auto units = units_of(parts);
    const std::vector<Ranges> shares = balanced_shares(units, owners, block);
    REQUIRE(shares.size() == owners);
    std::size_t n = 0, total = 0, largest = 0;
    for (const ShareUnit& u : units) {
      n += u.range.count;
      total += u.cost;
      if (!u.is_divisible) largest = std::max(largest, u.cost);
    }
    std::vector<int> owned(n);
    for (const Ranges& share : shares)
      for (const Slice& part : share)
        for (std::size_t i = part.first; i < part.first + part.count; ++i) ++owned[i];
    REQUIRE(std::all_of(owned.begin(), owned.end(), [](int times) { return times == 1; }));
    for (const Ranges& share : shares) {
      REQUIRE(cost_of(share, units) <= total / owners * 129 / 128 + largest + 3 * 2 * block);
      for (const ShareUnit& u : units) {
        std::size_t of_unit = 0;
        share.each_within(u.range, [&](Slice part, std::size_t) {
          of_unit += part.count;
          REQUIRE((part.first - u.range.first) % block == 0);
        });
        REQUIRE((u.is_divisible || of_unit == 0 || of_unit == u.range.count));
      }
    }
    const std::vector<Slice> rounds = rounds_of(shares);
    REQUIRE(rounds.size() % owners == 0);
    std::vector<std::vector<Slice>> found(owners);
    for (std::size_t i = 0, end = 0; i < rounds.size(); ++i) {
      if (i % owners == 0) end = 0;
      REQUIRE(rounds[i].first >= end);
      end = rounds[i].first + rounds[i].count;
      found[i % owners].push_back(rounds[i]);
    }
    for (std::size_t owner = 0; owner < owners; ++owner)
      REQUIRE(lockstep::union_of(found[owner]) == shares[owner]);
  }
}

TEST_CASE("parts of contiguous shares are one round") {
  const std::vector<Ranges> shares{Ranges{{0, 4}}, Ranges{}, Ranges{{4, 3}}};
  CHECK(rounds_of(shares) == std::vector<Slice>{{0, 4}, {4, 0}, {4, 3}});
  const std::vector<Ranges> twice{Ranges{{0, 2}, {5, 1}}, Ranges{{2, 3}}};
  CHECK(rounds_of(twice) == std::vector<Slice>{{0, 2}, {2, 3}, {5, 1}, {6, 0}});
  const std::vector<Ranges> unlike{Ranges{{0, 2}}, Ranges{{2, 9}}};
  CHECK(rounds_of(unlike) == std::vector<Slice>{{0, 2}, {2, 0}, {0, 0}, {2, 9}});
  CHECK(rounds_of(std::vector<Ranges>(2)) == std::vector<Slice>{{0, 0}, {0, 0}});
}
