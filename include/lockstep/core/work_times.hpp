/// \file
/// Durations of the parts of a step, as reported by a device's context. Invariants: used by one
/// thread at a time; times of equal work and equal call are summed.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/chrono.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/work.hpp"

namespace lockstep {

/// Collects times. A synchronous device calls `begin` when work starts; an asynchronous one reports
/// each finished call by `add`.
class WorkTimes : public WorkListener {
 public:
  struct Entry {
    Work work;
    std::string call;  ///< name of a kernel or of another call; empty: the whole work
    std::size_t calls = 0;
    double microseconds = 0;
  };

  WorkTimes() = default;
  WorkTimes(const WorkTimes&) = default;
  WorkTimes& operator=(const WorkTimes&) = default;
  virtual ~WorkTimes() = default;

  /// Adds the duration of one call.
  LOCKSTEP_COLD_DECL virtual void add(const Work& work, std::string_view call, double microseconds);
  /// An asynchronous device calls it before a sequence of `add`: these calls, `microseconds` in
  /// all and without gaps, have just ended.
  virtual void begin_calls(double /*microseconds*/) {}
  /// Adds a measurement of two consecutive time stamps of the device's clock with no work in
  /// between.
  LOCKSTEP_COLD_DECL void add_timer_overhead(double microseconds);

  /// Ends the current work and begins the next, by the host's clock.
  LOCKSTEP_COLD_DECL void begin(const Work& work) override;
  Work now() const override { return now_; }

  /// In order of first appearance.
  const std::vector<Entry>& entries() const { return entries_; }
  /// The smallest value passed to `add_timer_overhead`; 0 if there is none.
  LOCKSTEP_COLD_DECL double timer_overhead() const;

 private:
  using Clock = std::chrono::steady_clock;

  LOCKSTEP_COLD_DECL Entry& entry(const Work& work, std::string_view call);

  std::vector<Entry> entries_;
  Work now_;
  Clock::time_point since_{};
  double timer_overhead_ = std::numeric_limits<double>::infinity();
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/work_times.ipp"
#endif
