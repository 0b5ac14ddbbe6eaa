/// \file
/// What the events of a HostGpu are to say while ways are measured.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lockstep/devices/cuda/race.hpp"

namespace testing {

/// How often a way is run in its graph, if it takes so many milliseconds.
inline int copies_of(float time) {
  using lockstep::detail::cuda::Race;
  return std::clamp(static_cast<int>(Race::longest_graph / time), 1, Race::most_copies);
}
/// How often it is called: tried, timed once, recorded.
inline std::size_t calls_of(float time) { return static_cast<std::size_t>(2 + copies_of(time)); }

/// Adds the times of a race between ways that take so many milliseconds each.
inline void add_race(std::vector<float>& times, std::vector<float> ways) {
  using lockstep::detail::cuda::Race;
  if (ways.size() == 1) return;
  times.insert(times.end(), ways.begin(), ways.end());
  const auto round = [&] {
    float all = 0;
    for (const float way : ways) {
      times.push_back(way * static_cast<float>(copies_of(way)));
      all += times.back();
    }
    return all;
  };
  for (float warm = 0; warm < Race::warm_up;) warm += round();
  for (int i = 0; i < Race::rounds && ways.size() > 1; ++i) {
    round();
    const float best = *std::min_element(ways.begin(), ways.end());
    std::erase_if(ways, [&](float way) { return way > Race::hopeless * best; });
  }
}

}  // namespace testing
