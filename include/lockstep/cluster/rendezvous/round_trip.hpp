/// \file
/// How long a message to a peer and its answer take, the wake-up of the peer's thread included.
/// Invariant: no clock is compared with that of another process.
#pragma once

#include <cstdint>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// What a heartbeat carries for it, in microseconds.
struct TimeStamps {
  std::uint64_t sent = 0;  ///< by the sender's clock
  std::uint64_t echo = 0;  ///< the last `sent` of the receiver; 0: none has come
  std::uint64_t held = 0;  ///< since that came
  /// The longest round trip that the sender knows.
  std::uint64_t longest = 0;
};

/// Of one connection.
class RoundTrip {
 public:
  /// For the next heartbeat. `longest` is for the chief, which knows all members.
  LOCKSTEP_COLD_DECL TimeStamps stamps(Clock::time_point now, Clock::duration longest) const;
  /// Samples longer than `limit` are left out: a peer that is silent for that long is lost, so the
  /// time was one in which the processes were stopped.
  LOCKSTEP_COLD_DECL void update(const TimeStamps& stamps, Clock::time_point now,
                                 Clock::duration limit);
  /// Of the last seconds, on this connection.
  Clock::duration longest() const { return longest_; }
  /// The longest one that the peer reported.
  LOCKSTEP_COLD_DECL Clock::duration longest_of_peer() const;

 private:
  LOCKSTEP_COLD_DECL static std::uint64_t micros(Clock::duration time);

  TimeStamps last_{};
  Clock::time_point last_heard_{};
  Clock::duration longest_{0};
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/round_trip.ipp"
#endif
