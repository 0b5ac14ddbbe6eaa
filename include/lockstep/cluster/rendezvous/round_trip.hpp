/// \file
/// Round-trip times between two control threads, including the time until the peer's thread wakes
/// up. Invariant: clocks of different processes are never compared.
///
///     A  sent=t0 ------------>  B  receives, remembers t0 and its own time of arrival
///     A  receives <-----------  B  sent=..., echo=t0, held=time since the arrival
///     round trip = now - echo - held
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "lockstep/cluster/network/clock.hpp"

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
  [[gnu::cold]] TimeStamps stamps(Clock::time_point now, Clock::duration longest) const {
    return {micros(now.time_since_epoch()), last_.sent,
            last_.sent == 0 ? 0 : micros(now - last_heard_), micros(longest)};
  }
  /// Adds the sample of a heartbeat. A sample longer than `limit` is ignored: a peer that is silent
  /// for that long is lost, so one of the processes must have been stopped meanwhile.
  [[gnu::cold]] void update(const TimeStamps& stamps, Clock::time_point now,
                            Clock::duration limit) {
    // A long round trip keeps its effect for a few seconds.
    const double kept = std::max(
        0.0, 1 - std::chrono::duration<double>(now - last_heard_) / std::chrono::seconds(4));
    longest_ = std::chrono::duration_cast<Clock::duration>(longest_ * kept);
    last_ = stamps;
    last_heard_ = now;
    const std::uint64_t moment = micros(now.time_since_epoch());
    // The peer's values are untrusted: reject what would underflow.
    if (stamps.echo == 0 || stamps.echo > moment || stamps.held > moment - stamps.echo) return;
    const std::chrono::microseconds sample(moment - stamps.echo - stamps.held);
    if (sample <= limit) longest_ = std::max<Clock::duration>(sample, longest_);
  }
  /// The longest recent sample; it decays with a time constant of four seconds.
  Clock::duration longest() const { return longest_; }
  /// The `longest` of the peer's last heartbeat, at most a minute.
  [[gnu::cold]] Clock::duration longest_of_peer() const {
    return std::min<Clock::duration>(
        std::chrono::microseconds(std::min<std::uint64_t>(last_.longest, 1u << 30)),
        std::chrono::minutes(1));
  }

 private:
  /// Microseconds, rounded down.
  [[gnu::cold]] static std::uint64_t micros(Clock::duration time) {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(time).count());
  }

  TimeStamps last_{};
  Clock::time_point last_heard_{};
  Clock::duration longest_{0};
};

}  // namespace lockstep::detail
