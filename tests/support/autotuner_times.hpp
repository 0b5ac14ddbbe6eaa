/// \file
/// Time measurements for a HostGpu to report while the autotuner runs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lockstep/devices/cuda/autotuner.hpp"

namespace testing {

/// Copies of a candidate in its graph, if one run takes `time` milliseconds.
inline int copies_of(float time) {
  using lockstep::detail::cuda::Autotuner;
  return std::clamp(static_cast<int>(Autotuner::longest_graph / time), 1, Autotuner::max_copies);
}
/// Total calls of that candidate: one trial, one timed run, and the captured copies.
inline std::size_t calls_of(float time) { return static_cast<std::size_t>(2 + copies_of(time)); }

/// Appends the measurements of a tuning run between candidates with these times in milliseconds.
inline void add_tuning_times(std::vector<float>& times, std::vector<float> candidates) {
  using lockstep::detail::cuda::Autotuner;
  if (candidates.size() == 1) return;
  times.insert(times.end(), candidates.begin(), candidates.end());
  const auto round = [&] {
    float all = 0;
    for (const float candidate : candidates) {
      times.push_back(candidate * static_cast<float>(copies_of(candidate)));
      all += times.back();
    }
    return all;
  };
  for (float warm = 0; warm < Autotuner::warm_up;) warm += round();
  for (int i = 0; i < Autotuner::rounds && candidates.size() > 1; ++i) {
    round();
    const float best = *std::min_element(candidates.begin(), candidates.end());
    std::erase_if(candidates,
                  [&](float candidate) { return candidate > Autotuner::cutoff * best; });
  }
}

}  // namespace testing
