/// \file
/// Finds the rank that lives but makes no progress. Invariants: a rank that waits in `reduce` is
/// not taken for it while another one is elsewhere; if all are there, it is who has done least of
/// the exchange, of equals the one for which most others wait; time counts only while the rank's
/// own clock ran on time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/cluster/rendezvous/rank_progress.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/exchange_progress.hpp"

namespace lockstep {

/// How long a rank may make no progress.
struct StallLimits {
  std::chrono::milliseconds stall{30'000};  ///< in forward, backward, reduce, update
  /// In callback, checkpoint, data, evaluation and the first step.
  std::chrono::milliseconds idle{600'000};
};

namespace detail {

/// How long the own training thread has made no progress.
class StallTimer {
 public:
  /// At each wake-up of the control thread.
  LOCKSTEP_COLD_DECL void poll(const ProgressBoard& board, Clock::time_point now, bool on_time);
  milliseconds stalled_for() const { return stalled_for_; }

 private:
  std::uint64_t notes_ = 0;
  Clock::time_point last_ = Clock::now();
  milliseconds stalled_for_{0};
};

/// What a rank last said.
struct RankState {
  WorkerProgress progress{};
  milliseconds stalled_for{0};
  bool left = false;  ///< has said goodbye
  ExchangeProgress exchange{};
};

struct Straggler {
  std::size_t rank = 0;
  milliseconds waited{0}, limit{0};
};

/// The rank that is furthest behind: by what it has done of the exchanges, then who waits for
/// nobody is behind who waits in one; then by step, by phase, and by how many wait for it.
/// One that is in no loop counts as behind while others wait in `reduce`. Nothing if no rank is in
/// a loop.
LOCKSTEP_COLD_DECL std::optional<Straggler> find_straggler(const std::vector<RankState>& ranks,
                                                           const StallLimits& limits);

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/stall.ipp"
#endif
