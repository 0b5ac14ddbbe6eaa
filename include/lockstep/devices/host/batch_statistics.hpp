/// \file
/// Mean and variance of a batch that is split over threads or replicas. Invariants: all values are
/// in double; parts are merged sequentially in a fixed order, so that every replica that merges the
/// same parts gets the same bits; a part without rows has no effect.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lockstep/concepts/collective.hpp"

namespace lockstep::detail {

/// Number of doubles in the moments of a part: row count (1), mean (channels), and sum of squared
/// deviations from that mean (channels).
constexpr std::size_t moments_size(std::size_t channels) { return 1 + 2 * channels; }

/// Merges the moments `part` into `into` by the pairwise update of Chan, Golub and LeVeque (1979):
/// mean = mean_a + d n_b / n and M2 = M2_a + M2_b + d^2 n_a n_b / n, where d = mean_b - mean_a.
inline void merge_moments(double* into, const double* part, std::size_t channels) {
  if (part[0] == 0) return;
  if (into[0] == 0) {
    std::copy_n(part, moments_size(channels), into);
    return;
  }
  const double rows = into[0] + part[0], share = part[0] / rows, both = into[0] * share;
  for (std::size_t k = 1; k <= channels; ++k) {
    const double distance = part[k] - into[k];
    into[k] += distance * share;
    into[channels + k] += part[channels + k] + distance * distance * both;
  }
  into[0] = rows;
}

/// Replaces the `moments` of this replica by those of all replicas, merged in rank order; one
/// all-gather. `workspace` grows at the first call: the number of replicas is unknown before.
inline void merge_over_replicas(const CollectiveRef& group, double* moments, std::size_t channels,
                                std::vector<double>& workspace) {
  const std::size_t size = moments_size(channels);
  workspace.resize(group.size() * size);
  group.all_gather(reinterpret_cast<const std::byte*>(moments), size * sizeof(double),
                   reinterpret_cast<std::byte*>(workspace.data()));
  moments[0] = 0;
  for (std::size_t r = 0; r < group.size(); ++r)
    merge_moments(moments, workspace.data() + r * size, channels);
}

}  // namespace lockstep::detail
