#pragma once

#include "lockstep/cluster/rendezvous/round_trip.hpp"

#include <algorithm>
#include <chrono>

namespace lockstep::detail {

TimeStamps RoundTrip::stamps(Clock::time_point now, Clock::duration longest) const {
  return {micros(now.time_since_epoch()), last_.sent,
          last_.sent == 0 ? 0 : micros(now - last_heard_), micros(longest)};
}

void RoundTrip::update(const TimeStamps& stamps, Clock::time_point now, Clock::duration limit) {
  // A long round trip keeps its effect for a few seconds.
  const double kept =
      std::max(0.0, 1 - std::chrono::duration<double>(now - last_heard_) / std::chrono::seconds(4));
  longest_ = std::chrono::duration_cast<Clock::duration>(longest_ * kept);
  last_ = stamps;
  last_heard_ = now;
  const std::uint64_t moment = micros(now.time_since_epoch());
  // The peer's values are untrusted: reject what would underflow.
  if (stamps.echo == 0 || stamps.echo > moment || stamps.held > moment - stamps.echo) return;
  const std::chrono::microseconds sample(moment - stamps.echo - stamps.held);
  if (sample <= limit) longest_ = std::max<Clock::duration>(sample, longest_);
}

Clock::duration RoundTrip::longest_of_peer() const {
  return std::min<Clock::duration>(
      std::chrono::microseconds(std::min<std::uint64_t>(last_.longest, 1u << 30)),
      std::chrono::minutes(1));
}

std::uint64_t RoundTrip::micros(Clock::duration time) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(time).count());
}

}  // namespace lockstep::detail
