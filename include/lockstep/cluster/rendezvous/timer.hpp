/// \file
/// What the control thread does later. Invariant: who sets a timer again, or cancels it, is not
/// called for the time before.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <functional>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// \code
///   Timer timer(io);
///   timer.after(heartbeat_interval, [this] { tick(); });
/// \endcode
class Timer {
 public:
  explicit Timer(asio::io_context& io) : timer_(io) {}

  LOCKSTEP_COLD_DECL void at(Clock::time_point time, std::function<void()> action);
  LOCKSTEP_COLD_DECL void after(Clock::duration time, std::function<void()> action);
  LOCKSTEP_COLD_DECL void cancel();

 private:
  asio::steady_timer timer_;
};

/// The control thread does it as soon as it can.
LOCKSTEP_COLD_DECL void post(asio::io_context& io, std::function<void()> action);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/timer.ipp"
#endif
