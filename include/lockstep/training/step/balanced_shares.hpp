/// \file
/// Shares of a flat buffer that need not be contiguous, of as equal cost as the parts that must stay
/// whole allow. Invariant: the result depends on the arguments only, so that all replicas divide
/// alike.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/core/owned_ranges.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep {

/// A part of a flat buffer, such as a parameter.
struct ShareUnit {
  Slice range{};
  std::size_t cost = 0;       ///< of all its elements, for example bytes
  bool is_divisible = false;  ///< elements have equal costs, and any number of blocks is a share
};

namespace detail {

/// Units that are divided as one: a unit, and small ones after it.
struct ShareGroup {
  Slice range{};
  std::size_t cost = 0, joined = 0;  // of which `joined` of the small ones
  bool is_divisible = false;
};

[[gnu::cold]] inline std::vector<ShareGroup> groups_of(std::span<const ShareUnit> units,
                                                       std::size_t owners) {
  std::size_t total = 0;
  for (const ShareUnit& u : units) total += u.cost;
  const bool is_free = total == 0;
  if (is_free)
    for (const ShareUnit& u : units) total += u.range.count;
  const std::size_t small = total / owners / 256;
  std::vector<ShareGroup> groups;
  for (const ShareUnit& u : units) {
    if (u.range.count == 0) continue;
    const std::size_t cost = is_free ? u.range.count : u.cost;
    if (!groups.empty() && !groups.back().is_divisible && groups.back().joined + cost <= small) {
      groups.back().range.count += u.range.count;
      groups.back().cost += cost;
      groups.back().joined += cost;
    } else {
      groups.push_back({u.range, cost, 0, u.is_divisible && cost > small});
    }
  }
  return groups;
}

/// Keeps as divisible only the most expensive groups that suffice to fill up what others leave, since
/// each that is divided is one more part of several shares.
[[gnu::cold]] inline void keep_fillings(std::vector<ShareGroup>& groups, std::size_t owners) {
  std::vector<ShareGroup*> divisible;
  std::size_t largest = 0, all = 0;
  for (ShareGroup& g : groups) {
    if (g.is_divisible)
      divisible.push_back(&g);
    else
      largest = std::max(largest, g.cost);
  }
  std::stable_sort(divisible.begin(), divisible.end(),
                   [](const auto* a, const auto* b) { return a->cost > b->cost; });
  for (ShareGroup* const g : divisible) {
    g->is_divisible = all < owners * std::max(largest, g->cost);
    if (g->is_divisible) all += g->cost;
  }
}

/// The costs that raise all `loads` to one level, or as far as `all` suffices.
[[gnu::cold]] inline std::vector<std::size_t> fill_up(std::span<const std::size_t> loads,
                                                      std::size_t all) {
  std::vector<std::size_t> sorted(loads.begin(), loads.end());
  std::sort(sorted.begin(), sorted.end());
  std::size_t level = 0, sum = all;
  for (std::size_t k = 0; k < sorted.size(); ++k) {
    sum += sorted[k];
    level = sum / (k + 1);
    if (k + 1 == sorted.size() || level <= sorted[k + 1]) break;
  }
  std::vector<std::size_t> more;
  for (const std::size_t load : loads) more.push_back(level > load ? level - load : 0);
  return more;
}

}  // namespace detail

/// Divides `units`, which are in ascending order and adjacent, among `owners`. Whole units go, the
/// most expensive first, to the owner with the least; then as many divisible ones as that takes
/// fill up the others, in multiples of `block` elements from their beginnings. Units of at most 1/256 of a share are
/// not divided and stay with the unit before them, so that shares have few parts.
///
/// The most expensive share exceeds 1/owners by at most one whole unit, and by about a block if the
/// divisible units suffice. Source: R. L. Graham, Bounds on Multiprocessing Timing Anomalies, 1969.
/// \code
///   const std::vector<ShareUnit> units{{{0, 6}, 6}, {{6, 4}, 4}, {{10, 3}, 3}};
///   balanced_shares(units, 2, 64)   // {{0, 6}}, {{6, 7}}
/// \endcode
[[gnu::cold]] inline std::vector<Ranges> balanced_shares(std::span<const ShareUnit> units,
                                                         std::size_t owners, std::size_t block) {
  std::vector<detail::ShareGroup> groups = detail::groups_of(units, owners);
  detail::keep_fillings(groups, owners);
  std::vector<std::vector<Slice>> parts(owners);
  std::vector<std::size_t> loads(owners);
  std::vector<detail::ShareGroup> whole, divisible;
  for (const detail::ShareGroup& g : groups) (g.is_divisible ? divisible : whole).push_back(g);
  std::stable_sort(whole.begin(), whole.end(),
                   [](const auto& a, const auto& b) { return a.cost > b.cost; });
  for (const detail::ShareGroup& g : whole) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += g.cost;
    parts[static_cast<std::size_t>(least - loads.begin())].push_back(g.range);
  }
  std::size_t all = 0, done = 0, owner = 0;
  for (const detail::ShareGroup& g : divisible) all += g.cost;
  const std::vector<std::size_t> more = detail::fill_up(loads, all);
  std::size_t end = more[0];  // of the owner's costs among those of all divisible units
  for (const detail::ShareGroup& g : divisible) {
    const std::size_t each = std::max<std::size_t>(g.cost / g.range.count, 1);
    for (std::size_t at = 0; at < g.range.count;) {
      const std::size_t rest = g.range.count - at;
      const std::size_t blocks = end > done ? ((end - done) / each + block / 2) / block : 0;
      const std::size_t count = owner + 1 < owners ? std::min(rest, blocks * block) : rest;
      if (count == 0) {
        end += more[++owner];
        continue;
      }
      parts[owner].push_back({g.range.first + at, count});
      at += count;
      done += count * each;
    }
  }
  std::vector<Ranges> shares;
  for (const std::vector<Slice>& own : parts) shares.push_back(union_of(own));
  return shares;
}

/// The parts of disjoint shares in rounds: each has one part, which may be empty, of each owner, in
/// ascending order. Parts of a round have similar sizes, so that owners which exchange a round are
/// busy for the same time. Returned one after the other.
/// \code
///   rounds_of(shares)   // {0, 2} {2, 3}  {5, 1} {6, 0} of {{0, 2}, {5, 1}} and {{2, 3}}
/// \endcode
[[gnu::cold]] inline std::vector<Slice> rounds_of(std::span<const Ranges> shares) {
  std::vector<std::pair<Slice, std::size_t>> parts;  // and their owners
  for (std::size_t owner = 0; owner < shares.size(); ++owner)
    for (const Slice& part : shares[owner]) parts.emplace_back(part, owner);
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return a.first.first < b.first.first; });
  std::vector<std::vector<Slice>> rounds;  // each up to its last owner so far
  for (const auto& [part, owner] : parts) {
    std::vector<Slice>* best = nullptr;  // the one that wastes the fewest places
    for (std::vector<Slice>& round : rounds) {
      const std::size_t size = round.back().count;
      const bool is_similar = part.count <= 2 * size && size <= 2 * part.count;
      if (round.size() <= owner && is_similar && (best == nullptr || round.size() > best->size()))
        best = &round;
    }
    if (best == nullptr) best = &rounds.emplace_back();
    const std::size_t end = best->empty() ? 0 : best->back().first + best->back().count;
    best->resize(owner, Slice{end, 0});
    best->push_back(part);
  }
  if (rounds.empty()) rounds.emplace_back();
  std::vector<Slice> all;
  for (std::vector<Slice>& round : rounds) {
    const std::size_t end = round.empty() ? 0 : round.back().first + round.back().count;
    round.resize(shares.size(), Slice{end, 0});
    all.insert(all.end(), round.begin(), round.end());
  }
  return all;
}

}  // namespace lockstep
