/// \file
/// How long a message to a peer and its answer take, the wake-up of the peer's thread included.
/// Invariant: no clock is compared with that of another process.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "lockstep/cluster/rendezvous/clock.hpp"

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
  TimeStamps stamps(Clock::time_point now, Clock::duration longest) const {
    return {micros(now.time_since_epoch()), last_.sent, last_.sent == 0 ? 0 : micros(now - heard_),
            micros(longest)};
  }
  /// Samples longer than `limit` are left out: a peer that is silent for that long is lost, so the
  /// time was one in which the processes were stopped.
  void hear(const TimeStamps& stamps, Clock::time_point now, Clock::duration limit) {
    // A long one counts for some seconds.
    const double kept =
        std::max(0.0, 1 - std::chrono::duration<double>(now - heard_) / std::chrono::seconds(4));
    longest_ = std::chrono::duration_cast<Clock::duration>(longest_ * kept);
    last_ = stamps;
    heard_ = now;
    const std::uint64_t moment = micros(now.time_since_epoch());
    if (stamps.echo == 0 || stamps.echo > moment || stamps.held > moment - stamps.echo) return;
    const std::chrono::microseconds sample(moment - stamps.echo - stamps.held);
    if (sample <= limit) longest_ = std::max<Clock::duration>(sample, longest_);
  }
  /// Of the last seconds, on this connection.
  Clock::duration longest() const { return longest_; }
  /// The longest one that the peer reported.
  Clock::duration longest_of_peer() const {
    return std::min<Clock::duration>(
        std::chrono::microseconds(std::min<std::uint64_t>(last_.longest, 1u << 30)),
        std::chrono::minutes(1));
  }

 private:
  static std::uint64_t micros(Clock::duration time) {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(time).count());
  }

  TimeStamps last_{};
  Clock::time_point heard_{};
  Clock::duration longest_{0};
};

}  // namespace lockstep::detail
