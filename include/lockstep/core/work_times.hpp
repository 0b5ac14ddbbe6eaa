/// \file
/// How long each part of a step takes, as a device's context reports it. Invariants: one thread
/// uses an object at a time; what is reported for equal work and an equal call is added up.
#pragma once

#include <chrono>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"
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
  LOCKSTEP_COLD_DECL void add(const Work& work, std::string_view call, double microseconds);
  /// What two points in time without anything between them are apart, by the device's clock.
  LOCKSTEP_COLD_DECL void add_timer_overhead(double microseconds);

  /// By the host's clock: the work that began before ends here.
  LOCKSTEP_COLD_DECL void begin(const Work& work) override;
  Work now() const override { return now_; }

  /// In the order in which they first came.
  const std::vector<Entry>& entries() const { return entries_; }
  /// The least that `add_timer_overhead` was told; 0 if it was told nothing.
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
