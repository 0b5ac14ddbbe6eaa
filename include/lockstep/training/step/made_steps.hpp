/// \file
/// The steps of an asynchronous phase that are part of the weights. Invariant: `ahead` is ascending, and
/// its numbers are above `all_below`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep::detail {

/// A set of numbers, mostly the first ones.
///
///     0 1 2 3 4 . 6 7 .    all_below 5, ahead {6, 7}
struct MadeSteps {
  std::uint64_t all_below = 0;
  std::vector<std::uint64_t> ahead{};

  std::uint64_t count() const { return all_below + ahead.size(); }
  bool contains(std::uint64_t step) const {
    return step < all_below || std::binary_search(ahead.begin(), ahead.end(), step);
  }
  void add(std::uint64_t step) {
    if (contains(step)) return;
    ahead.insert(std::upper_bound(ahead.begin(), ahead.end(), step), step);
    auto next = ahead.begin();
    for (; next != ahead.end() && *next == all_below; ++next) ++all_below;
    ahead.erase(ahead.begin(), next);
  }
  bool operator==(const MadeSteps&) const = default;
};

}  // namespace lockstep::detail
