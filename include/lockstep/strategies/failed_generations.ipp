#pragma once

#include "lockstep/strategies/failed_generations.hpp"

#include <utility>

namespace lockstep::detail {

void FailedGenerations::blame(const PeerLost& loss) {
  if (loss.how() != ended_by_another) blamed_ = loss.rank();
}

FailedGenerations::Action FailedGenerations::ended(std::size_t own, bool has_trained, Time now) {
  constexpr std::size_t patience = 2, most = 8;
  const auto blamed = std::exchange(blamed_, std::nullopt);
  if (has_trained) count_ = 0;
  if (has_trained || !blamed) return Action::go_on;  // without blame another member has ended it
  if (count_++ == 0) first_ = now;
  if (count_ >= patience && blamed == own) return Action::leave;
  const bool is_late = count_ > patience && now - first_ >= limit_;
  return count_ >= most || is_late ? Action::give_up : Action::go_on;
}

void FailedGenerations::begin(bool same) {
  if (!same) count_ = 0;
}

}  // namespace lockstep::detail
