#pragma once

#include "lockstep/training/asynchronous/tickets.hpp"

#include <algorithm>

namespace lockstep::detail {

std::optional<std::uint64_t> Tickets::grant(std::size_t worker) {
  if (released_.empty() && next_ == end_) return std::nullopt;
  const std::uint64_t others = outstanding_.size();
  const bool may_begin = std::all_of(outstanding_.begin(), outstanding_.end(), [&](const auto& at) {
    return finished_ - at.second.finished + others <= staleness_;
  });
  if (!may_begin) return std::nullopt;
  std::uint64_t step = next_;
  if (released_.empty()) {
    ++next_;
    pass_made();
  } else {
    step = released_.extract(released_.begin()).value();
  }
  outstanding_[step] = {worker, finished_};
  return step;
}

void Tickets::finish(std::uint64_t step) {
  if (outstanding_.erase(step) > 0) ++finished_;
}

void Tickets::release(std::size_t worker) {
  for (auto at = outstanding_.begin(); at != outstanding_.end();)
    if (at->second.worker == worker) {
      released_.insert(at->first);
      at = outstanding_.erase(at);
    } else {
      ++at;
    }
}

void Tickets::stop() { end_ = next_; }

}  // namespace lockstep::detail
