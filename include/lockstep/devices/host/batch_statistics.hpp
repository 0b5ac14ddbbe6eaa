/// \file
/// Statistics of batches that lie in several places: threads, replicas. Invariants: numbers are in
/// double; parts are merged one after the other in a given order, so that all who merge the same
/// parts get the same bits; a part without rows changes nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lockstep/concepts/collective.hpp"

namespace lockstep::detail {

/// Elements of the moments of a part: the number of its rows, the mean of each channel, the sum of
/// squared distances from that mean of each channel.
constexpr std::size_t moments_size(std::size_t channels) { return 1 + 2 * channels; }

/// `into` becomes the moments of both parts (Chan, Golub and LeVeque, 1979).
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

/// `moments` of this replica become those of all replicas, merged in the order of ranks: one
/// exchange. `workspace` grows at the first call, since only then the number of replicas is known.
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
