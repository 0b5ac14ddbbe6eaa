/// \file
/// The processes that have come for the first generation, and those that a fresh one asks.
/// Invariant: while index 0 answers, a process asks at most one other a second.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "lockstep/cluster/elastic/elastic_messages.hpp"
#include "lockstep/cluster/network/clock.hpp"

namespace lockstep::detail {

/// A fresh process' search for a job that runs without index 0, and index 0's list of those that
/// have not come, kept by index 0 and reported to the others.
class RollCall {
 public:
  using Time = Clock::time_point;

  RollCall(std::size_t described, std::size_t self)
      : described_(described), self_(self), searched_(self) {}

  void begin(Time now) { last_search_ = now; }

  /// The next process to ask, of those for which `is_here` is false; nullopt: none now.
  template <class IsHere>
  std::optional<std::size_t> next(Time now, const IsHere& is_here) {
    constexpr milliseconds step{50}, second{1000}, round{20'000};
    // A round must end within the time to join: few of many described processes may be left.
    const milliseconds longest = std::min(second, round / static_cast<int>(described_));
    // While index 0 gathers the first generation, the others need no connections among themselves.
    const bool is_gathering = self_ != 0 && is_here(0);
    const milliseconds interval = is_gathering ? second : std::min(longest, pause_);
    if (now - last_search_ < interval) return std::nullopt;
    last_search_ = now;
    pause_ = std::min(second, pause_ + step);
    for (std::size_t tries = 1; tries < described_; ++tries) {
      searched_ = searched_ + 1 < described_ ? searched_ + 1 : 1;
      if (searched_ != self_ && !is_here(searched_)) return searched_;
    }
    return std::nullopt;
  }

  /// The processes that have not come, as index 0 knows them.
  template <class IsHere>
  MissingMembers missing(Time now, const IsHere& is_here) const {
    constexpr milliseconds valid{5000};  // index 0 may have ended a moment before this process
    if (self_ != 0 && heard_ && now - *heard_ < valid) return reported_;
    if (self_ != 0 && !is_here(0)) return {1, {0}};
    MissingMembers result;
    for (std::uint32_t i = 1; i < described_ && self_ == 0; ++i) {
      if (is_here(i)) continue;
      ++result.count;
      if (result.listed.size() < MissingMembers::max_listed) result.listed.push_back(i);
    }
    return result;
  }
  /// Keeps the report of index 0, unless it is malformed.
  void note(const MissingMembers& report, Time now) {
    const bool is_possible = std::all_of(report.listed.begin(), report.listed.end(),
                                         [&](std::uint32_t index) { return index < described_; });
    if (report.listed.empty() || !is_possible) return;
    reported_ = report;
    heard_ = now;
  }
  /// At index 0: true if the others need a new report.
  bool is_report_due(Time now) const { return now >= next_report_; }
  void has_reported(Time now) { next_report_ = now + milliseconds(500); }

 private:
  std::size_t described_, self_, searched_;
  milliseconds pause_{100};
  Time last_search_{}, next_report_{};
  MissingMembers reported_{};
  std::optional<Time> heard_{};
};

}  // namespace lockstep::detail
