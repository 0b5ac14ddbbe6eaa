#include "lockstep/training/elastic/range_exchange.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "lockstep/training/elastic/recovering_runs.hpp"
#include "unit/training/elastic/plans.hpp"

namespace ls = lockstep;
using namespace lockstep::detail;
using ls::Ranges;
using ls::Slice;

TEST_CASE("an element comes from the process with its newest version, of several the lowest") {
  const std::vector<RangeOffer> offers{
      {{{{0, 10}, 3}}, {{0, 10}}}, {{{{4, 4}, 4}}, {{0, 4}}}, {{{{6, 4}, 4}}, {}}, {{}, {{2, 8}}}};
  const std::vector<RangeTransfer> plan = plan_transfers(offers);
  const std::vector<RangeTransfer> expected{{{0, 2}, 3, 0, {false, true, false, false}},
                                            {{2, 2}, 3, 0, {false, true, false, true}},
                                            {{4, 4}, 4, 1, {true, false, false, true}},
                                            {{8, 2}, 4, 2, {true, false, false, true}}};
  CHECK((plan == expected));
}

TEST_CASE("nothing is sent that no process lacks") {
  const std::vector<RangeOffer> offers{{{{{0, 10}, 3}}, {{0, 10}}}, {{{{0, 5}, 3}}, {{0, 5}}}};
  CHECK(plan_transfers(offers).empty());
  CHECK(plan_transfers(std::vector<RangeOffer>(3)).empty());
}

TEST_CASE("elements that a process needs and none has are lost") {
  const std::vector<RangeOffer> offers{{{{{0, 4}, 1}}, {{0, 4}}}, {{{{6, 4}, 1}}, {{2, 8}}}};
  try {
    plan_transfers(offers);
    FAIL();
  } catch (const RangeLost& e) {
    CHECK(e.range == Slice{4, 2});
  }
}

TEST_CASE("random plans give each process the newest version of what it needs") {
  std::mt19937 draw(5);
  const auto below = [&](unsigned n) { return static_cast<std::size_t>(draw() % n); };
  constexpr std::size_t n = 40;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<RangeOffer> offers(1 + below(5));
    std::vector<std::vector<std::uint64_t>> has(offers.size(), std::vector<std::uint64_t>(n));
    for (std::size_t p = 0; p < offers.size(); ++p)
      for (std::size_t at = 0; at < n;) {
        const Slice part{at, 1 + below(9)};
        const Slice range{at, std::min(part.count, n - at)};
        if (p == 0 || below(2) == 0) {  // process 0 has all
          const std::uint64_t version = 1 + below(3);
          offers[p].has.push_back({range, version});
          for (std::size_t i = 0; i < range.count; ++i) has[p][at + i] = version;
        }
        if (below(2) == 0) offers[p].needs.add(range);
        at += range.count;
      }
    auto found = has;
    for (const RangeTransfer& t : plan_transfers(offers))
      for (std::size_t i = t.range.first; i < t.range.first + t.range.count; ++i) {
        CHECK(has[t.from][i] == t.version);
        for (std::size_t p = 0; p < offers.size(); ++p)
          if (t.to[p]) found[p][i] = t.version;
      }
    for (std::size_t i = 0; i < n; ++i) {
      std::uint64_t newest = 0;
      for (const auto& its : has) newest = std::max(newest, its[i]);
      for (std::size_t p = 0; p < offers.size(); ++p)
        for (const Slice& needed : offers[p].needs)
          if (needed.contains(i)) CHECK(found[p][i] == newest);
    }
  }
}

TEST_CASE("processes exchange ranges of several buffers by version") {
  const auto job = std::make_shared<testing::ElasticJob>(3, 8);
  testing::run_elastic<plans::Float>(job, 3, [](const auto& worker) {
    const std::size_t p = worker.worker;
    Replicas<plans::Plain, std::remove_cvref_t<decltype(worker)>, ls::SparseCategoricalCrossentropy,
             ls::SGD>
        all(worker, 1, replicas::crossentropy, ls::SGD{}, {});
    // Process p has [10 p, 10 p + 15) of 40 elements at version p; the last elements are of process 2.
    std::vector<float> first(40), second(40), to_first(40), to_second(40);
    for (std::size_t i = 0; i < 40; ++i) {
      first[i] = static_cast<float>(100 * p + i);
      second[i] = -first[i];
    }
    const Ranges needs = p == 1 ? Ranges{{0, 35}} : p == 2 ? Ranges{{5, 10}} : Ranges{};
    const auto bytes = [](std::vector<float>& v) { return reinterpret_cast<std::byte*>(v.data()); };
    const bool wants = p != 0;
    const RangeOffer mine{.has = {{{10 * p, 15}, p}}, .needs = needs};
    const RangeBuffers buffers{
        .from = {bytes(first), bytes(second)},
        .to = {wants ? bytes(to_first) : nullptr, wants ? bytes(to_second) : nullptr},
        .element = sizeof(float)};
    const std::vector<HeldRange> got = exchange_ranges(all, mine, buffers);
    const auto owner = [](std::size_t i) { return i >= 20 ? 2u : i >= 10 ? 1u : 0u; };
    for (const Slice& range : needs)
      for (std::size_t i = range.first; i < range.first + range.count; ++i) {
        REQUIRE(to_first[i] == static_cast<float>(100 * owner(i) + i));
        REQUIRE(to_second[i] == -to_first[i]);
      }
    if (p == 1)
      REQUIRE((got == std::vector<HeldRange>{{{0, 10}, 0}, {{10, 10}, 1}, {{20, 15}, 2}}));
    if (p == 0) REQUIRE(got.empty());
  });
}
