#pragma once

#include "lockstep/training/asynchronous/tickets.hpp"

#include <algorithm>

namespace lockstep::detail {

std::optional<std::uint64_t> Tickets::grant() {
  if (next_ == end_) return std::nullopt;
  const std::uint64_t others = outstanding_.size();
  const bool may_begin = std::all_of(outstanding_.begin(), outstanding_.end(), [&](const auto& at) {
    return finished_ - at.second + others <= staleness_;
  });
  if (!may_begin) return std::nullopt;
  const std::uint64_t step = next_++;
  pass_made();
  outstanding_[step] = finished_;
  return step;
}

void Tickets::finish(std::uint64_t step) {
  if (outstanding_.erase(step) > 0) ++finished_;
}

void Tickets::stop() {
  // Those between are the steps that a lost worker had begun.
  end_ = made_.ahead.empty() ? next_ : std::max(next_, made_.ahead.back() + 1);
}

}  // namespace lockstep::detail
