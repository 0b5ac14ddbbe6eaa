/// \file
/// How long a job runs before it proposes another newcomer at an address. Invariant: a newcomer
/// that fails whenever it is admitted interrupts the job less and less, at most every 16 s in the
/// end.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

#include "lockstep/cluster/network/clock.hpp"

namespace lockstep::detail {

/// The pauses of all described indexes: 1 s after a newcomer that was not admitted or failed, then
/// twice as long each time, up to 16 s; 1 s again after a minute without one.
class NewcomerPauses {
 public:
  using Time = Clock::time_point;

  explicit NewcomerPauses(std::size_t described) : pauses_(described) {}

  bool is_paused(std::size_t index, Time now) const { return now < pauses_[index].until; }

  /// A newcomer of this index was not admitted, or failed.
  void extend(std::size_t index, Time now) {
    constexpr int most = 4;
    constexpr std::chrono::seconds forgotten{60};
    Pause& pause = pauses_[index];
    if (now - pause.until >= forgotten) pause = {};
    pause.until = now + std::chrono::seconds(1 << pause.times);
    pause.times = std::min(pause.times + 1, most);
  }

 private:
  struct Pause {
    int times = 0;
    Time until{};
  };

  std::vector<Pause> pauses_;  // by index
};

}  // namespace lockstep::detail
