/// \file
/// Detection of stragglers: ranks that are alive but make no progress. Invariants: a rank that
/// waits in `reduce` is not a straggler while another rank is elsewhere; if all ranks are in
/// `reduce`, the straggler has completed the fewest exchanges, and among equals is awaited by the
/// most ranks; only time counts during which the rank's own control thread ran on schedule.
///
///     step 7   rank 0  forward | backward | reduce .......... waits for rank 2
///              rank 1  forward | backward | reduce .......... waits for rank 2
///              rank 2  forward | ....................         the straggler
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/cluster/network/clock.hpp"
#include "lockstep/cluster/rendezvous/rank_progress.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/exchange_progress.hpp"

namespace lockstep {

/// How long a rank may make no progress.
struct StallLimits {
  std::chrono::milliseconds stall{30'000};  ///< in forward, backward, reduce, update
  /// In callback, checkpoint, data, evaluation, and in the first step.
  std::chrono::milliseconds idle{600'000};
};

namespace detail {

/// The time since this process last made progress: its training thread entered a phase, or data of
/// an exchange moved. A slow link is not a stall.
class StallTimer {
 public:
  /// Called at each wake-up of the control thread. `on_time` is false if the thread woke up late;
  /// that interval does not count.
  LOCKSTEP_COLD_DECL void poll(const ProgressBoard& board, const ExchangeProgress& exchange,
                               Clock::time_point now, bool on_time);
  /// The time without progress; 0 right after progress.
  milliseconds stalled_for() const { return stalled_for_; }

 private:
  std::uint64_t notes_ = 0;
  ExchangeProgress exchange_{};
  Clock::time_point last_ = Clock::now();
  milliseconds stalled_for_{0};
};

/// The last heartbeat of a rank.
struct RankState {
  WorkerProgress progress{};
  milliseconds stalled_for{0};
  bool left = false;  ///< has sent Leave
  ExchangeProgress exchange{};
};

/// A rank that makes no progress, for how long, and the limit of its phase.
struct Straggler {
  std::size_t rank = 0;
  milliseconds waited{0}, limit{0};
};

/// The slowest rank, by these criteria in order: idle while others wait in `reduce`; fewer
/// completed exchanges; not waiting inside an exchange; lower step; earlier phase; awaited by more
/// ranks; longer without progress. Nullopt if no rank is in a loop.
LOCKSTEP_COLD_DECL std::optional<Straggler> find_straggler(const std::vector<RankState>& ranks,
                                                           const StallLimits& limits);

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/stall.ipp"
#endif
