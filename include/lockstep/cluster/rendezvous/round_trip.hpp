/// \file
/// Round-trip times between two control threads, including the time until the peer's thread wakes
/// up. Invariant: clocks of different processes are never compared.
///
///     A  sent=t0 ------------>  B  receives, remembers t0 and its own time of arrival
///     A  receives <-----------  B  sent=..., echo=t0, held=time since the arrival
///     round trip = now - echo - held
#pragma once

#include <cstdint>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// The time stamps of a heartbeat, in microseconds.
struct TimeStamps {
  std::uint64_t sent = 0;  ///< by the sender's clock
  std::uint64_t echo = 0;  ///< the receiver's last `sent`; 0: none has arrived
  std::uint64_t held = 0;  ///< how long ago that arrived
  /// The longest round trip that the sender knows.
  std::uint64_t longest = 0;
};

/// The round trips of one connection.
class RoundTrip {
 public:
  /// For the next heartbeat. `longest`: see TimeStamps; the chief passes that of all members.
  LOCKSTEP_COLD_DECL TimeStamps stamps(Clock::time_point now, Clock::duration longest) const;
  /// Adds the sample of a heartbeat. A sample longer than `limit` is ignored: a peer that is silent
  /// for that long is lost, so one of the processes must have been stopped meanwhile.
  LOCKSTEP_COLD_DECL void update(const TimeStamps& stamps, Clock::time_point now,
                                 Clock::duration limit);
  /// The longest recent sample; it decays with a time constant of four seconds.
  Clock::duration longest() const { return longest_; }
  /// The `longest` of the peer's last heartbeat, at most a minute.
  LOCKSTEP_COLD_DECL Clock::duration longest_of_peer() const;

 private:
  /// Microseconds, rounded down.
  LOCKSTEP_COLD_DECL static std::uint64_t micros(Clock::duration time);

  TimeStamps last_{};
  Clock::time_point last_heard_{};
  Clock::duration longest_{0};
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/round_trip.ipp"
#endif
