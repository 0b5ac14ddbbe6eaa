/// \file
/// The progress of training, from the training thread to the control thread. Invariants: publishing
/// costs two relaxed stores and no lock; one thread of a process publishes.
///
///     state_: | step, 48 bits | unused, 7 | phase, 8 | first_step, 1 |     notes_: updates so far
#pragma once

#include <atomic>
#include <cstdint>

#include "lockstep/core/phase.hpp"

namespace lockstep {

/// A step, counted from 0, and its phase.
struct WorkerProgress {
  std::uint64_t step = 0;
  Phase phase = Phase::idle;
  bool first_step = false;  ///< slow: libraries are loaded, kernels are compiled
  bool operator==(const WorkerProgress&) const = default;
};

namespace detail {

/// Written by the training thread, read by the control thread. Step and phase share one atomic, so
/// a reader never sees a phase with the step of another update.
class ProgressBoard {
 public:
  /// Training thread only.
  void note(const WorkerProgress& p) {
    state_.store(p.step << 16 | std::uint64_t{static_cast<std::uint8_t>(p.phase)} << 1 |
                     std::uint64_t{p.first_step},
                 std::memory_order_relaxed);
    notes_.store(notes_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  /// The last update.
  WorkerProgress read() const {
    const std::uint64_t state = state_.load(std::memory_order_relaxed);
    return {state >> 16, static_cast<Phase>(state >> 1 & 0xFF), (state & 1) != 0};
  }
  /// Grows with each update, so that a reader can detect progress without comparing values.
  std::uint64_t notes() const { return notes_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> state_{0}, notes_{0};
};

}  // namespace detail
}  // namespace lockstep
