/// \file
/// How long each part of a step takes, as a device's context reports it. Invariants: one thread
/// uses an object at a time; what is reported for equal work and an equal call is added up.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/durations.hpp"
#include "lockstep/core/work.hpp"

namespace lockstep {

/// Collects times. A device that computes in the calls themselves tells it by `begin` which work
/// starts; one that computes later reports each call by `add`.
class WorkTimes final : public WorkListener {
 public:
  struct Entry {
    Work work;
    std::string call;  ///< a kernel's name, or what else it is; empty: all of the work
    std::size_t calls = 0;
    double microseconds = 0;
  };

  /// A call took so long.
  [[gnu::cold]] void add(const Work& work, std::string_view call, double microseconds) {
    Entry& e = entry(work, call);
    ++e.calls;
    e.microseconds += microseconds;
  }
  /// What two points in time without anything between them are apart, by the device's clock.
  [[gnu::cold]] void add_nothing(double microseconds) {
    nothing_ = std::min(nothing_, microseconds);
  }

  /// By the host's clock: the work that began before ends here.
  [[gnu::cold]] void begin(const Work& work) override {
    const auto now = Clock::now();
    if (now_.pass != WorkPass::none) {
      Entry& e = entry(now_, "");
      e.calls += now_.resumes ? 0 : 1;
      e.microseconds += std::chrono::duration<double, std::micro>(now - since_).count();
    }
    now_ = work;
    since_ = Clock::now();
  }
  Work now() const override { return now_; }

  /// In the order in which they first came.
  const std::vector<Entry>& entries() const { return entries_; }
  /// The least that `add_nothing` was told; 0 if it was told nothing.
  double nothing() const {
    return nothing_ < std::numeric_limits<double>::infinity() ? nothing_ : 0;
  }

 private:
  using Clock = std::chrono::steady_clock;

  Entry& entry(const Work& work, std::string_view call) {
    for (Entry& e : entries_)
      if (e.call == call && is_same(e.work, work)) return e;
    entries_.push_back({work, std::string(call)});
    return entries_.back();
  }

  std::vector<Entry> entries_;
  Work now_;
  Clock::time_point since_{};
  double nothing_ = std::numeric_limits<double>::infinity();
};

}  // namespace lockstep
