/// \file
/// How OpenMP's threads wait. libgomp's threads poll for several milliseconds before they sleep, so
/// that on a contended core the thread that polls delays the one that it waits for. The library
/// reads OMP_WAIT_POLICY before main, but it polls for a few microseconds only while it manages more
/// threads than the process has cores: a parked team makes it do so, and its end makes it poll again.
///
///     contended    parked thread ── team of N ── sleeps          waits of all teams are short
///     calm         parked thread ends, and its team with it      waits of all teams are long
///
/// Invariants: results do not depend on it; nothing is parked where the user has set
/// OMP_WAIT_POLICY or GOMP_SPINCOUNT, and nothing outlives the last context.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>

#include "lockstep/core/config.hpp"
#include "lockstep/core/process/threads.hpp"

namespace lockstep::detail {

/// A thread that sleeps, and whose OpenMP team of `threads` sleeps too, during the object's
/// lifetime. Where the system cannot create the threads, there is no team.
class ParkedTeam {
 public:
  /// \throws Error if the thread cannot be created.
  LOCKSTEP_COLD_DECL explicit ParkedTeam(int threads);
  LOCKSTEP_COLD_DECL ~ParkedTeam();
  ParkedTeam(const ParkedTeam&) = delete;
  ParkedTeam& operator=(const ParkedTeam&) = delete;

 private:
  LOCKSTEP_COLD_DECL void park(int threads);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_ended_ = false;
  std::thread thread_;
};

/// The wait policy of the process' OpenMP threads.
class TeamWaits {
 public:
  /// No more threads are parked; on machines with more cores, waits stay long.
  static constexpr int max_parked = 256;

  /// One instance for all contexts, which lives as long as one of them.
  LOCKSTEP_COLD_DECL static std::shared_ptr<TeamWaits> of_process();

  /// Makes waits short or long for contexts whose teams have `threads` threads, at least 2.
  void follow(bool contended, int threads) {
    if (contended != are_short_.load(std::memory_order_relaxed)) change(contended, threads);
  }
  /// Whether a team is parked.
  bool are_short() const { return are_short_.load(std::memory_order_relaxed); }

 private:
  using Parked = std::unique_ptr<ParkedTeam, OwningProcess>;

  LOCKSTEP_COLD_DECL void change(bool contended, int threads);

  std::atomic<bool> are_short_{false};
  std::mutex mutex_;
  Parked parked_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cpu/team_waits.ipp"
#endif
