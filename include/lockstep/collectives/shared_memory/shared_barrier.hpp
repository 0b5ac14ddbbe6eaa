/// \file
/// A barrier between processes, in memory that they share. Invariants: the members agree on whether
/// a barrier was passed, since one atomic word holds both the phase and the cause of the end; no
/// wait exceeds the timeout, which excludes time in which this process was suspended; a member that
/// is killed blocks nobody from ending the barrier.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "lockstep/collectives/algorithms/shutdown.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/exchange_progress.hpp"

namespace lockstep::detail {

/// Why a barrier ended for good.
struct BarrierEnd {
  Shutdown::Cause cause = Shutdown::Cause::none;
  /// The member that aborted, was lost, was waited for, or called something else.
  std::size_t rank = 0;
  /// Because of a process on another machine; see SharedBarrier::shutdown.
  bool is_elsewhere = false;
};

/// The part of a barrier that lies in shared memory. Zero bytes are its initial state.
///
///     word   | elsewhere: 1 bit | cause: 7 bits | rank: 8 bits | phase: 16 bits |
///
/// It is the futex that members sleep on.
struct alignas(64) BarrierState {
  static constexpr std::size_t max_size = 256;
  struct alignas(64) Member {  // a cache line each, against false sharing
    std::atomic<std::uint64_t> arrivals{0};
  };

  std::atomic<std::uint32_t> word{0};
  alignas(64) std::atomic<std::uint32_t> arrived{0};
  alignas(64) std::atomic<std::uint32_t> sleepers{0};
  std::array<Member, max_size> members{};
  enum class Known : std::uint32_t { nothing, partly, shutdown };
  alignas(64) std::atomic<Known> known{Known::nothing};
  Shutdown shutdown{};  ///< if the cause is elsewhere
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free &&
              std::is_trivially_copyable_v<Shutdown> && sizeof(BarrierState) % 64 == 0);

/// One member's view of a barrier. The last member to arrive advances the phase and wakes the
/// others; an abort or a timeout sets the cause instead, after which the phase never changes.
/// \code
///   SharedBarrier barrier(state, {.rank = 1, .size = 2});
///   if (barrier.wait() != SharedBarrier::Result::passed) report(barrier.end());
/// \endcode
class SharedBarrier {
 public:
  struct Options {
    std::size_t rank = 0, size = 1;
    std::chrono::nanoseconds timeout = std::chrono::seconds(30);  ///< of each wait
    int spins = 0;                                                ///< polls before a member sleeps
  };
  enum class Result { passed, ended, timed_out };

  /// `state` must outlive the barrier.
  LOCKSTEP_COLD_DECL SharedBarrier(BarrierState& state, const Options& options);

  /// Returns when all members have arrived, or the barrier has ended. Everything that a member wrote
  /// before it arrived is visible to those that pass. `timed_out` is returned to one member only; the
  /// others get `ended`. `more` is added to the timeout. Called by one thread at a time.
  LOCKSTEP_DECL Result wait(std::chrono::nanoseconds more = {});
  /// Ends the barrier in all processes; the first cause wins. Callable from any thread.
  LOCKSTEP_COLD_DECL void end(Shutdown::Cause cause, std::size_t rank);
  /// The same because of a process on another machine.
  LOCKSTEP_COLD_DECL void end(const Shutdown& why);
  /// The cause elsewhere; nullopt if the member that wrote it died meanwhile.
  LOCKSTEP_COLD_DECL std::optional<Shutdown> shutdown() const;

  bool has_ended() const { return state_.word.load(std::memory_order_acquire) >> 24 != 0; }
  /// The cause; `none` while the barrier can be used.
  LOCKSTEP_COLD_DECL BarrierEnd end() const;
  /// The members that have arrived less often than this one.
  LOCKSTEP_COLD_DECL std::vector<std::size_t> missing() const;
  /// The barriers passed, and the first missing member during a wait. Callable from any thread.
  LOCKSTEP_COLD_DECL ExchangeProgress progress() const;

  /// The number of barriers passed by this member; equal in all members between two waits.
  std::uint64_t passed() const { return passed_.load(std::memory_order_relaxed); }
  std::size_t rank() const { return options_.rank; }
  std::size_t size() const { return options_.size; }
  std::chrono::nanoseconds timeout() const { return options_.timeout; }

 private:
  static std::uint32_t phase_of(std::uint32_t word) { return word & 0xffffu; }
  std::uint32_t phase() const { return static_cast<std::uint32_t>(passed() & 0xffffu); }

  static constexpr std::uint32_t elsewhere = 0x80;

  LOCKSTEP_COLD_DECL void set_end(std::uint32_t cause, std::size_t rank);
  LOCKSTEP_DECL Result pass();
  LOCKSTEP_DECL Result sleep(std::chrono::nanoseconds limit);
  /// Sleeps until the word changes, at most until `deadline`. \return whether it has changed.
  LOCKSTEP_DECL bool sleep_until(std::chrono::steady_clock::time_point deadline);
  LOCKSTEP_DECL void wake_sleepers();

  BarrierState& state_;
  Options options_;
  std::atomic<std::uint64_t> passed_{0};
  std::atomic<bool> waits_{false};
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/shared_memory/shared_barrier.ipp"
#endif
