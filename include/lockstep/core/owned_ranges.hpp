/// \file
/// Parts of a flat buffer, as one replica owns them. Invariants: ascending, disjoint, none empty,
/// neighbours joined, so that equal sets of elements are equal values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <vector>

#include "lockstep/core/slice.hpp"

namespace lockstep {

/// A set of elements of a flat buffer.
///
///     buffer    | 0 .. 10 |   | 20 .. 25 |      Ranges{{0, 10}, {20, 5}}, size() 15
///     packed    | 0 .. 10 | 10 .. 15 |          where a holder of these elements alone keeps them
class Ranges {
 public:
  Ranges() = default;
  /// `parts` must be ascending and disjoint; empty ones are left out.
  [[gnu::cold]] Ranges(std::initializer_list<Slice> parts) {
    for (const Slice& part : parts) add(part);
  }
  /// Adds elements after the last.
  [[gnu::cold]] void add(Slice next) {
    if (next.count == 0) return;
    size_ += next.count;
    if (!parts_.empty() && parts_.back().first + parts_.back().count == next.first)
      parts_.back().count += next.count;
    else
      parts_.push_back(next);
  }

  std::span<const Slice> parts() const { return parts_; }
  auto begin() const { return parts_.begin(); }
  auto end() const { return parts_.end(); }
  /// Elements of all parts.
  std::size_t size() const { return size_; }
  /// Calls f(part, place) for each part of [first, first + count) that belongs to the set. `place`
  /// is where its first element is in a buffer that holds only the elements of the set.
  template <class F>
  void each_within(Slice range, const F& f) const {
    std::size_t place = 0;
    for (const Slice& part : parts_) {
      const std::size_t first = std::max(part.first, range.first);
      const std::size_t end = std::min(part.first + part.count, range.first + range.count);
      if (first < end) f(Slice{first, end - first}, place + first - part.first);
      place += part.count;
    }
  }
  bool operator==(const Ranges&) const = default;

 private:
  std::vector<Slice> parts_;
  std::size_t size_ = 0;
};

/// The elements of any of the sets.
[[gnu::cold]] inline Ranges union_of(std::span<const Slice> a, std::span<const Slice> b = {}) {
  std::vector<Slice> parts(a.begin(), a.end());
  parts.insert(parts.end(), b.begin(), b.end());
  std::sort(parts.begin(), parts.end(),
            [](const Slice& x, const Slice& y) { return x.first < y.first; });
  Ranges result;
  std::size_t end = 0;
  for (const Slice& part : parts) {
    const std::size_t first = std::max(part.first, end), last = part.first + part.count;
    if (first >= last) continue;
    result.add({first, last - first});
    end = last;
  }
  return result;
}

/// Divides the elements [0, n) among `owners`, as evenly as possible. A unit, a parameter
/// that an update needs whole, is never divided; `units` are in ascending order, without gaps from 0
/// to n. Without units, any element may begin a share. With more owners than units some own nothing.
/// \code
///   shares_of(10, 3)          // {0, 4} {4, 3} {7, 3}
///   shares_of(10, 3, units)   // {0, 6} {6, 0} {6, 4} if the units are {0, 6} and {6, 4}
/// \endcode
[[gnu::cold]] inline std::vector<Slice> shares_of(std::size_t n, std::size_t owners,
                                                  std::span<const Slice> units = {}) {
  std::vector<Slice> shares;
  std::size_t begin = 0;
  for (std::size_t i = 0, next = 0; i < owners; ++i) {
    const Slice even = slice_of(n, owners, i);
    std::size_t end = even.first + even.count;
    if (!units.empty()) {
      // The boundary between two units that is nearest to the even one; of two, the lower.
      while (next < units.size() && units[next].first + units[next].count < end) ++next;
      if (next < units.size()) {
        const std::size_t below = units[next].first, above = below + units[next].count;
        end = i + 1 < owners && end - below <= above - end ? below : above;
      }
    }
    end = std::max(end, begin);
    shares.push_back({begin, end - begin});
    begin = end;
  }
  return shares;
}

/// The parts of `shares`, which are in ascending order, within `range`.
/// \code
///   parts_within(shares, {3, 4}, parts)   // {3, 1} {4, 3} {7, 0} of {0, 4} {4, 3} {7, 3}
/// \endcode
inline void parts_within(std::span<const Slice> shares, Slice range, std::vector<Slice>& parts) {
  parts.clear();
  const std::size_t end = range.first + range.count;
  for (const Slice& share : shares) {
    const std::size_t first = std::clamp(share.first, range.first, end);
    parts.push_back({first, std::clamp(share.first + share.count, first, end) - first});
  }
}

/// The same for several rounds of shares, each with one of each of `members`: calls f(parts) for those
/// that have elements within `range`.
template <class F>
void each_round_within(std::span<const Slice> shares, std::size_t members, Slice range,
                       std::vector<Slice>& parts, const F& f) {
  for (; !shares.empty(); shares = shares.subspan(members)) {
    parts_within(shares.first(members), range, parts);
    if (std::any_of(parts.begin(), parts.end(), [](const Slice& p) { return p.count > 0; }))
      f(std::span<const Slice>(parts));
  }
}

}  // namespace lockstep
