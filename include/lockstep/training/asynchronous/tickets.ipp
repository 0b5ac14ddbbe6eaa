#pragma once

#include "lockstep/training/asynchronous/tickets.hpp"

#include <algorithm>

namespace lockstep::detail {

std::optional<std::uint64_t> Tickets::grant() {
  for (auto& [step, begun] : outstanding_)
    if (begun.handed_out < slices_) return hand_out(step, begun, begun.handed_out++);
  if (!may_begin()) return grant_copy();
  const std::uint64_t step = next_++;
  pass_made();
  Begun& begun = outstanding_[step] = {.finished = finished_, .handed_out = 1};
  begun.parts.resize(slices_);
  return hand_out(step, begun, 0);
}

bool Tickets::may_begin() const {
  const std::uint64_t others = outstanding_.size();
  return next_ < end_ &&
         std::all_of(
             outstanding_.begin(), outstanding_.end(),
             [&](const auto& at) { return finished_ - at.second.finished + others <= staleness_; });
}

std::optional<std::uint64_t> Tickets::grant_copy() {
  for (auto& [step, begun] : outstanding_) {
    std::size_t copies = 0,
                fewest = slices_;  // slices are handed out in order, the longest ago first
    for (std::size_t i = 0; i < slices_; ++i) {
      const Part& part = begun.parts[i];
      if (part.is_accepted) continue;
      copies += part.workers - 1;
      if (fewest == slices_ || part.workers < begun.parts[fewest].workers) fewest = i;
    }
    if (fewest < slices_ && copies < copies_) return hand_out(step, begun, fewest);
  }
  return std::nullopt;
}

bool Tickets::needs(std::uint64_t slice) const {
  const auto at = outstanding_.find(slice / slices_);
  return at != outstanding_.end() && !at->second.parts[slice % slices_].is_accepted;
}

bool Tickets::has_begun(std::uint64_t step) const {
  return outstanding_.count(step) > 0 || (copies_ > 0 && step < next_);
}

bool Tickets::accept(std::uint64_t slice) {
  if (!needs(slice)) {
    ++dropped_;
    return false;
  }
  Begun& begun = outstanding_.at(slice / slices_);
  begun.parts[slice % slices_].is_accepted = true;
  ++begun.accepted;
  return true;
}

bool Tickets::is_accepted(std::uint64_t step) const {
  const auto at = outstanding_.find(step);
  return at != outstanding_.end() && at->second.accepted == slices_;
}

void Tickets::finish(std::uint64_t step) {
  if (outstanding_.erase(step) > 0) ++finished_;
}

void Tickets::stop() {
  // Those between are the steps that a lost worker had begun.
  end_ = made_.ahead.empty() ? next_ : std::max(next_, made_.ahead.back() + 1);
}

}  // namespace lockstep::detail
