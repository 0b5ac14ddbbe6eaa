#pragma once

#include "lockstep/core/work_times.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

void WorkTimes::add(const Work& work, std::string_view call, double microseconds) {
  Entry& e = entry(work, call);
  ++e.calls;
  e.microseconds += microseconds;
}

void WorkTimes::add_timer_overhead(double microseconds) {
  timer_overhead_ = std::min(timer_overhead_, microseconds);
}

void WorkTimes::begin(const Work& work) {
  const auto now = Clock::now();
  if (now_.pass != WorkPass::none) {
    Entry& e = entry(now_, "");
    e.calls += now_.resumes ? 0 : 1;
    e.microseconds += std::chrono::duration<double, std::micro>(now - since_).count();
  }
  now_ = work;
  since_ = Clock::now();
}

double WorkTimes::timer_overhead() const {
  return timer_overhead_ < std::numeric_limits<double>::infinity() ? timer_overhead_ : 0;
}

WorkTimes::Entry& WorkTimes::entry(const Work& work, std::string_view call) {
  for (Entry& e : entries_)
    if (e.call == call && is_same(e.work, work)) return e;
  entries_.push_back({work, std::string(call)});
  return entries_.back();
}

}  // namespace lockstep
