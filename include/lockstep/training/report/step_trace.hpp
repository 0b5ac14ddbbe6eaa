/// \file
/// The interface through which a model is traced; <lockstep/trace.hpp> implements it. Invariant: a step
/// that is not traced costs one branch a phase.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/chrono.hpp"
#include "lockstep/core/phase.hpp"
#include "lockstep/core/port.hpp"
#include "lockstep/core/work_times.hpp"
#include "lockstep/training/step/any_replicas.hpp"

namespace lockstep::detail {

/// Nanoseconds of the process' steady clock.
inline std::int64_t trace_time() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// When a process entered a collective operation, and when it left it, by its own clock.
struct TraceRoundTrip {
  std::int64_t begin = 0, end = 0;
};

/// The traced steps of one process. Implemented by StepRecorder.
class StepTrace {
 public:
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;
  virtual ~StepTrace() = default;

  /// The listeners of a replica.
  struct Lanes {
    WorkTimes* work = nullptr;
    ExchangeListener *own = nullptr,
                     *background = nullptr;  ///< in its thread, and in that of buckets
  };

  /// Called by the replicas before the first event. `first`: rank of replica 0; `on_host`: replica
  /// 0 computes in the thread of the loop; `events`: expected of a replica.
  virtual void open(std::size_t replicas, std::size_t first, bool on_host, std::size_t events) = 0;
  virtual Lanes lanes(std::size_t replica) = 0;
  /// The loop enters a phase; Phase::forward stands for a whole step.
  virtual void begin(Phase phase, std::uint64_t step) = 0;
  /// Gathers the events of all processes at the chief. \returns the trace as JSON in Chrome's format;
  /// empty in processes other than the chief. Collective.
  virtual std::string gathered(AnyJob& replicas) const = 0;

 protected:
  StepTrace() = default;
};

/// Makes traces; see port.
class TracePort {
 public:
  virtual std::shared_ptr<StepTrace> make() const = 0;

 protected:
  ~TracePort() = default;
};

#ifdef LOCKSTEP_SEPARATE_COMPILATION
template <>
const TracePort* port<TracePort>();
#endif

}  // namespace lockstep::detail
