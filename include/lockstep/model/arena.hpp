/// \file
/// Static memory planning: offsets in one arena for buffers with known lifetimes. Invariants:
/// buffers with overlapping lifetimes never overlap in memory; the pass is near-linear in the
/// number of buffers.
#pragma once

#include <array>
#include <cstddef>
#include <limits>

namespace lockstep::detail {

/// Alignment of offsets and sizes, so that `offset * batch` is aligned to cache lines for any
/// batch.
inline constexpr std::size_t arena_alignment = 64;
constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + arena_alignment - 1) / arena_alignment * arena_alignment;
}

/// A buffer of `size` bytes per example that is live from time `from` to time `to`, inclusive.
struct ArenaBuffer {
  int from = std::numeric_limits<int>::max(), to = -1;
  std::size_t size = 0, offset = 0;
  constexpr bool used() const { return to >= 0; }
  constexpr void needed_at(int time, std::size_t bytes) {
    size = round_up(bytes);
    from = time < from ? time : from;
    to = time > to ? time : to;
  }
};

/// Free list below `top`: sorted gaps, never adjacent.
/// \code
///   0       gap[0]      gap[1]         top
///   [used  ][     ][used][    ][used   ]
/// \endcode
template <std::size_t Capacity>
class GapList {
 public:
  /// First fit. If no gap fits, extends the gap that ends at the top, or else the top.
  constexpr std::size_t allocate(std::size_t size) {
    std::size_t g = 0;
    while (g < count_ && gap_[g].end - gap_[g].begin < size) ++g;
    if (g == count_) {
      const bool at_top = count_ > 0 && gap_[count_ - 1].end == top_;
      const std::size_t offset = at_top ? gap_[--count_].begin : top_;
      top_ = offset + size;
      return offset;
    }
    const std::size_t offset = gap_[g].begin;
    gap_[g].begin += size;
    if (gap_[g].begin == gap_[g].end) erase(g);
    return offset;
  }
  constexpr void release(std::size_t begin, std::size_t end) {
    std::size_t g = 0;
    while (g < count_ && gap_[g].end < begin) ++g;
    const bool joins_left = g < count_ && gap_[g].end == begin;
    const std::size_t right = g + (joins_left ? 1 : 0);
    const bool joins_right = right < count_ && gap_[right].begin == end;
    if (joins_left && joins_right) {
      gap_[g].end = gap_[right].end;
      erase(right);
    } else if (joins_left) {
      gap_[g].end = end;
    } else if (joins_right) {
      gap_[right].begin = begin;
    } else {
      for (std::size_t i = count_++; i > g; --i) gap_[i] = gap_[i - 1];
      gap_[g] = {begin, end};
    }
  }
  constexpr std::size_t top() const { return top_; }

 private:
  struct Gap {
    std::size_t begin, end;
  };
  constexpr void erase(std::size_t g) {
    --count_;
    for (std::size_t i = g; i < count_; ++i) gap_[i] = gap_[i + 1];
  }
  std::array<Gap, Capacity + 1> gap_{};
  std::size_t count_ = 0, top_ = 0;
};

/// Assigns an offset to each used buffer. Visits the times up to `last` in order: first allocates
/// the buffers that become live, then releases those that die. \returns the size of the arena, in
/// bytes per example.
template <std::size_t N>
constexpr std::size_t pack(std::array<ArenaBuffer, N>& buffer, int last) {
  // Buffers by birth and by death, by counting sort; times are below N.
  std::array<std::size_t, N + 2> born{}, dead{}, by_birth{}, by_death{};
  for (const ArenaBuffer& b : buffer) {
    if (!b.used()) continue;
    ++born[static_cast<std::size_t>(b.from) + 1];
    ++dead[static_cast<std::size_t>(b.to) + 1];
  }
  const std::size_t end = static_cast<std::size_t>(last) + 1;
  for (std::size_t t = 0; t < end; ++t) {
    born[t + 1] += born[t];
    dead[t + 1] += dead[t];
  }
  auto next_birth = born, next_death = dead;
  for (std::size_t i = 0; i < N; ++i) {
    if (!buffer[i].used()) continue;
    by_birth[next_birth[static_cast<std::size_t>(buffer[i].from)]++] = i;
    by_death[next_death[static_cast<std::size_t>(buffer[i].to)]++] = i;
  }
  GapList<N> gaps;
  for (std::size_t t = 0; t < end; ++t) {
    for (std::size_t k = born[t]; k < born[t + 1]; ++k) {
      ArenaBuffer& b = buffer[by_birth[k]];
      b.offset = gaps.allocate(b.size);
    }
    for (std::size_t k = dead[t]; k < dead[t + 1]; ++k) {
      const ArenaBuffer& b = buffer[by_death[k]];
      if (b.size > 0) gaps.release(b.offset, b.offset + b.size);
    }
  }
  return gaps.top();
}

}  // namespace lockstep::detail
