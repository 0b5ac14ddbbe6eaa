#pragma once

#include "lockstep/training/elastic/fit_position.hpp"

#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

inline constexpr std::string_view fit_position_name = "elastic";

[[gnu::cold]] inline std::vector<double> numbers_of(const RunRequests& requests) {
  return {requests.stop_now ? 1.0 : 0.0, requests.end_training ? 1.0 : 0.0,
          static_cast<double>(requests.signal)};
}
[[gnu::cold]] inline RunRequests requests_in(const std::vector<double>& numbers) {
  RunRequests requests;
  if (numbers.size() != 3) return requests;
  requests.stop_now = numbers[0] != 0;
  requests.end_training = numbers[1] != 0;
  requests.signal = static_cast<int>(numbers[2]);
  return requests;
}

void FitPosition::add_to(JobState& state) const {
  CallbackState numbers;
  numbers.set("before", static_cast<double>(before));
  numbers.set("steps", static_cast<double>(steps));
  numbers.set("requests", numbers_of(requests));
  numbers.set("agreed", numbers_of(agreed));
  if (rate_before) numbers.set("rate before", *rate_before);
  if (last_checkpoint) numbers.set("last checkpoint", static_cast<double>(*last_checkpoint));
  state.callbacks.emplace_back(fit_position_name, std::move(numbers));
}

FitPosition FitPosition::take_from(JobState& state) {
  if (!state.position || state.callbacks.empty() ||
      state.callbacks.back().first != fit_position_name)
    throw Error(
        "elastic: the state of another worker has no position within fit; make the same calls in "
        "the same order in all workers");
  const CallbackState& numbers = state.callbacks.back().second;
  FitPosition at;
  at.before = numbers.count("before");
  at.steps = numbers.count("steps");
  at.requests = requests_in(numbers.numbers("requests"));
  at.agreed = requests_in(numbers.numbers("agreed"));
  if (numbers.contains("rate before")) at.rate_before = numbers.number("rate before");
  if (numbers.contains("last checkpoint")) at.last_checkpoint = numbers.count("last checkpoint");
  state.callbacks.pop_back();
  return at;
}

}  // namespace lockstep::detail
