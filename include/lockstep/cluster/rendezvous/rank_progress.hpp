/// \file
/// How far a rank has come. Invariants: to note progress costs the training thread two stores and
/// takes no lock; only one thread of a process notes it.
#pragma once

#include <atomic>
#include <cstdint>

#include "lockstep/core/config.hpp"
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
  LOCKSTEP_DECL void note(const WorkerProgress& p);
  LOCKSTEP_DECL WorkerProgress read() const;
  /// Grows with each note.
  std::uint64_t notes() const { return notes_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> state_{0}, notes_{0};
};

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/rank_progress.ipp"
#endif
