/// \file
/// Timers of the control thread. Invariant: setting a timer again, or cancelling it, discards the
/// action that was set before.
#pragma once

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <utility>

#include "lockstep/cluster/network/clock.hpp"

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
  [[gnu::cold]] void at(Clock::time_point time, std::function<void()> action) {
    timer_.expires_at(time);
    timer_.async_wait([action = std::move(action)](const asio::error_code& error) {
      if (!error) action();
    });
  }
  /// Runs `action` after `time`.
  [[gnu::cold]] void after(Clock::duration time, std::function<void()> action) {
    at(Clock::now() + time, std::move(action));
  }
  /// Discards the action.
  [[gnu::cold]] void cancel() { timer_.cancel(); }

 private:
  asio::steady_timer timer_;
};

/// Runs `action` on the control thread as soon as possible.
[[gnu::cold]] inline void post(asio::io_context& io, std::function<void()> action) {
  asio::post(io, std::move(action));
}

}  // namespace lockstep::detail
