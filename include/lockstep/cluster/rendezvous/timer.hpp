/// \file
/// Timers of the control thread. Invariant: setting a timer again, or cancelling it, discards the
/// action that was set before.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <functional>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// A one-shot timer. It runs its action on the control thread.
/// \code
///   Timer timer(io);
///   timer.after(heartbeat_interval, [this] { tick(); });
/// \endcode
class Timer {
 public:
  /// `io` must outlive the timer.
  explicit Timer(asio::io_context& io) : timer_(io) {}

  /// Runs `action` at `time`, instead of any action set before.
  LOCKSTEP_COLD_DECL void at(Clock::time_point time, std::function<void()> action);
  /// Runs `action` after `time`.
  LOCKSTEP_COLD_DECL void after(Clock::duration time, std::function<void()> action);
  /// Discards the action.
  LOCKSTEP_COLD_DECL void cancel();

 private:
  asio::steady_timer timer_;
};

/// Runs `action` on the control thread as soon as possible.
LOCKSTEP_COLD_DECL void post(asio::io_context& io, std::function<void()> action);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/timer.ipp"
#endif
