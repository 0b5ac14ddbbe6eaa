/// \file
/// Detects that other processes compute on the cores of this one. A waiting thread may poll while it
/// has a core to itself; where cores are contended, it delays the thread that it waits for.
///
///     computing thread    watch() once ─┐
///     before each step    sample() ─────┴─ run delays less idle time ── ContentionFilter
///     before each wait    is_contended() <─────────────────────────────────────┘
///
/// A delay while another core of the thread is idle does not count: the scheduler, not a stranger, is
/// its cause. The idle time is read only after a window with delays, and decides over the next one.
///
/// Invariants: samples cost at most 0.1 % of the time; without the kernel's statistics
/// (/proc/PID/task/TID/schedstat) cores count as not contended.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/chrono.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/process/cores.hpp"

namespace lockstep::detail {

/// How waiting threads use their cores: LOCKSTEP_WAIT_POLICY.
enum class WaitMode : std::uint8_t {
  adaptive,  ///< "auto", the default: they poll for a short time unless cores are contended
  active,    ///< always poll, as if cores were never contended
  passive    ///< sleep at once, as if cores were always contended
};

/// The mode of a value of LOCKSTEP_WAIT_POLICY; null or "": adaptive. \throws UsageError if the
/// value is invalid.
LOCKSTEP_COLD_DECL WaitMode parse_wait_mode(const char* value);

/// Time for which thread `thread` of this process was ready to run but had no core; empty if the
/// thread has ended or the kernel keeps no such statistics. `root` is prepended to the path.
LOCKSTEP_COLD_DECL std::optional<std::chrono::nanoseconds> read_run_delay(pid_t thread,
                                                                          const char* root = "");

/// The time for which cores were idle, summed over those that `cores` marks with '1', core 0 first,
/// in the text of /proc/stat, which may be cut off.
LOCKSTEP_COLD_DECL std::chrono::nanoseconds idle_time(std::string_view stat,
                                                      std::string_view cores);

/// Bytes that suffice for the lines of `cores` cores in /proc/stat, with ten numbers each.
constexpr std::size_t stat_bytes(std::size_t cores) { return 256 * (cores + 1); }

/// Decides from run delays whether cores are contended. It starts at the first delay that matters,
/// and ends after a calm time, which doubles when the end was premature.
class ContentionFilter {
 public:
  /// A delay of this share of a window starts contention, and one below `calm_share` is calm.
  static constexpr double contended_share = 0.1, calm_share = 0.02;
  /// Seconds of calm that end contention: the first, and the most after premature ends.
  static constexpr double min_patience = 0.25, max_patience = 8;
  /// An end is premature if the next contention starts within this many seconds.
  static constexpr double premature = 2;

  /// Adds a window: `share` is the largest run delay of a thread, less the idle time, over the
  /// window's length.
  /// \return whether cores are contended.
  LOCKSTEP_COLD_DECL bool update(double share, double seconds);

 private:
  bool is_contended_ = false;
  double calm_ = 0, free_ = premature, patience_ = min_patience;
};

/// Whether LOCKSTEP_WAIT_POLICY is "passive".
LOCKSTEP_COLD_DECL bool waits_passively();

/// Whether the cores of this process are contended, as of the last sample. One value per process;
/// see `log_state`.
[[gnu::visibility("default")]] inline std::atomic<bool>& contended_flag() {
  static std::atomic<bool> flag{waits_passively()};
  return flag;
}
inline bool is_contended() { return contended_flag().load(std::memory_order_relaxed); }

/// The watched threads of this process and their run delays. Callable from any thread.
/// \code
///   Contention& contention = Contention::of_process();
///   contention.watch();                   // in each computing thread, before it computes
///   const bool sleep = contention.sample();
/// \endcode
class Contention {
 public:
  /// \throws UsageError if LOCKSTEP_WAIT_POLICY is invalid.
  LOCKSTEP_DECL static Contention& of_process();

  LOCKSTEP_COLD_DECL explicit Contention(WaitMode mode);

  WaitMode mode() const { return mode_; }
  /// Adds the calling thread, once. It computes on `cores`, or if they are not given on the cores of
  /// its affinity. Allocates the first time only.
  LOCKSTEP_DECL void watch(const std::optional<Cores>& cores = std::nullopt);
  /// Takes a sample if one is due. \return whether cores are contended.
  LOCKSTEP_DECL bool sample();

 private:
  using Clock = std::chrono::steady_clock;
  struct Thread {
    pid_t id;
    std::string cores;
    std::optional<std::chrono::nanoseconds> delay;  ///< in total, at the last sample
    std::optional<std::chrono::nanoseconds> idle;   ///< of its cores, after a window with delays
    std::chrono::nanoseconds waited{};              ///< the delay within the last window
  };

  /// \return whether the thread was added.
  LOCKSTEP_COLD_DECL bool add(pid_t thread, const Cores& cores);
  LOCKSTEP_COLD_DECL void take_sample(Clock::time_point now);
  /// The largest run delay of a thread within the last window.
  LOCKSTEP_COLD_DECL std::chrono::nanoseconds largest_delay();
  /// The same, less the idle time of each thread's cores in the window; without the idle time at its
  /// start a thread has none.
  LOCKSTEP_COLD_DECL std::chrono::nanoseconds largest_contended_delay();
  /// Locks, unless a forked child has copied a locked mutex.
  LOCKSTEP_COLD_DECL std::unique_lock<std::mutex> lock();

  WaitMode mode_;
  std::atomic<Clock::rep> due_{0};  ///< of the next sample
  std::mutex mutex_;
  Clock::time_point last_{};
  std::vector<Thread> threads_;
  int forks_ = 0;
  bool weighs_idle_ = false;  ///< the last window had delays
  std::vector<char> stat_;
  ContentionFilter filter_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/process/contention.ipp"
#endif
