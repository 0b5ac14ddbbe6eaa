#include "lockstep/model/arena.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>

#include "lockstep/core/rng.hpp"

namespace {

namespace detail = lockstep::detail;

constexpr std::size_t buffers = 40;
using Buffers = std::array<detail::ArenaBuffer, buffers>;

/// Random sizes and lifetimes within [0, last]; some buffers are unused.
Buffers random_buffers(lockstep::Philox& g, int last) {
  Buffers result{};
  for (auto& b : result) {
    if (g.below(8) == 0) continue;
    const std::size_t bytes = g.below(5) == 0 ? 0 : 1 + g.below(900);
    const auto range = static_cast<std::uint32_t>(last) + 1;
    b.needed_at(static_cast<int>(g.below(range)), bytes);
    b.needed_at(static_cast<int>(g.below(range)), bytes);
  }
  return result;
}

bool live_together(const detail::ArenaBuffer& a, const detail::ArenaBuffer& b) {
  return a.used() && b.used() && a.from <= b.to && b.from <= a.to;
}
bool overlap(const detail::ArenaBuffer& a, const detail::ArenaBuffer& b) {
  return a.offset < b.offset + b.size && b.offset < a.offset + a.size;
}

}  // namespace

TEST_CASE(
    "buffers that are live at the same time never overlap, and all are aligned to cache lines") {
  lockstep::Philox g(1);
  for (int round = 0; round < 300; ++round) {
    const int last = 1 + static_cast<int>(g.below(30));
    Buffers b = random_buffers(g, last);
    const std::size_t top = detail::pack(b, last);
    for (std::size_t i = 0; i < buffers; ++i) {
      if (!b[i].used()) continue;
      REQUIRE(b[i].offset % 64 == 0);
      REQUIRE(b[i].size % 64 == 0);
      REQUIRE(b[i].offset + b[i].size <= top);
      for (std::size_t k = 0; k < i; ++k)
        if (b[i].size > 0 && b[k].size > 0 && live_together(b[i], b[k]))
          REQUIRE_FALSE(overlap(b[i], b[k]));
    }
  }
}

TEST_CASE("memory is at least the peak of live buffers, and is reused") {
  lockstep::Philox g(2);
  std::size_t taken = 0, without_reuse = 0;
  for (int round = 0; round < 100; ++round) {
    Buffers b = random_buffers(g, 30);
    const std::size_t top = detail::pack(b, 30);
    std::size_t most = 0, sum = 0;
    for (int t = 0; t <= 30; ++t) {
      std::size_t now = 0;
      for (const auto& x : b)
        if (x.used() && x.from <= t && t <= x.to) now += x.size;
      most = std::max(most, now);
    }
    for (const auto& x : b) sum += x.used() ? x.size : 0;
    REQUIRE(top >= most);
    REQUIRE(top <= sum);
    taken += top;
    without_reuse += sum;
  }
  CHECK(taken * 10 < without_reuse * 8);
}

TEST_CASE("buffers with disjoint lifetimes share memory") {
  std::array<detail::ArenaBuffer, 10> chain{};
  for (std::size_t i = 0; i < chain.size(); ++i) {
    chain[i].needed_at(static_cast<int>(i), 100);
    chain[i].needed_at(static_cast<int>(i) + 1, 100);
  }
  // At most two neighbours are live at a time, so 2 * 128 bytes suffice for all ten.
  CHECK(detail::pack(chain, 10) == 256);
}

TEST_CASE("sizes are rounded up to whole cache lines") {
  static_assert(detail::round_up(0) == 0 && detail::round_up(1) == 64 &&
                detail::round_up(64) == 64 && detail::round_up(65) == 128);
  SUCCEED();
}
