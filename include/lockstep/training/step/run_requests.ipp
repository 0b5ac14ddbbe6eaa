#pragma once

#include "lockstep/training/step/run_requests.hpp"

#include <csignal>

namespace lockstep::detail {

inline constexpr double zero_rate = -1;  // encodes a rate of 0

inline std::optional<double> decoded_rate(double rate) {
  if (rate == 0) return std::nullopt;
  return rate == zero_rate ? 0 : rate;
}

double SummedRequests::encoded(const std::optional<double>& rate) {
  return rate == 0.0 ? zero_rate : rate.value_or(0);
}

SummedRequests SummedRequests::of(const RunRequests& requests) {
  const auto number = [](bool is_set) { return is_set ? 1.0 : 0.0; };
  SummedRequests all{number(requests.stop_now),
                     number(requests.end_training),
                     number(requests.admit),
                     number(requests.chief_terminated),
                     number(requests.owner_terminated),
                     encoded(requests.chief_rate),
                     {}};
  for (std::size_t i = 0; i < stop_signals.size(); ++i)
    all.by_signal[i] = number(requests.signal == stop_signals[i]);
  return all;
}

RunRequests SummedRequests::requests(std::span<const double> rates) const {
  RunRequests result{stop_now > 0, end_training > 0};
  result.admit = admit > 0;
  result.chief_terminated = chief_terminated > 0;
  result.owners_terminated = static_cast<std::size_t>(owner_terminated);
  result.chief_rate = decoded_rate(chief_rate);
  result.stopping = static_cast<std::size_t>(stop_now);
  for (std::size_t i = 0; i < stop_signals.size(); ++i) {
    if (by_signal[i] > 0) result.signal = result.signal == 0 ? stop_signals[i] : SIGTERM;
    if (stop_signals[i] != SIGINT) result.terminated += static_cast<std::size_t>(by_signal[i]);
  }
  for (const double rate : rates)
    if (!result.learning_rate) result.learning_rate = decoded_rate(rate);
  return result;
}

}  // namespace lockstep::detail
