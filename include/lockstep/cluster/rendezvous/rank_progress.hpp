/// \file
/// How far a rank has come. Invariants: to note progress costs the training thread two stores and
/// takes no lock; only one thread of a process notes it.
#pragma once

#include <atomic>
#include <cstdint>

#include "lockstep/core/phase.hpp"

namespace lockstep {

/// A step, counted from 0, and the phase of it.
struct WorkerProgress {
  std::uint64_t step = 0;
  Phase phase = Phase::idle;
  bool first_step = false;  ///< of the run: libraries load, kernels are made
  bool operator==(const WorkerProgress&) const = default;
};

namespace detail {

/// Where the training thread notes its progress, and the control thread reads it.
class ProgressBoard {
 public:
  void note(const WorkerProgress& p) {
    state_.store(p.step << 16 | std::uint64_t{static_cast<std::uint8_t>(p.phase)} << 1 |
                     std::uint64_t{p.first_step},
                 std::memory_order_relaxed);
    notes_.store(notes_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  WorkerProgress read() const {
    const std::uint64_t state = state_.load(std::memory_order_relaxed);
    return {state >> 16, static_cast<Phase>(state >> 1 & 0xFF), (state & 1) != 0};
  }
  /// Grows with each note.
  std::uint64_t notes() const { return notes_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> state_{0}, notes_{0};
};

}  // namespace detail
}  // namespace lockstep
